"""One request's story: slots, resident prompts, speculation, decoding, and the engine that steps them all."""

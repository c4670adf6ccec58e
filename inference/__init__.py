"""Everything that needs the model: checkpoints, tokenized prompts, prefill and decode, and the core process."""

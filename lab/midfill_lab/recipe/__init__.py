"""How the bundled models were made: a corpus of pinned packages, and what turns a trained model into a GGUF file."""

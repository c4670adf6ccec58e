"""The training commands but `run` and `export`: corpus, vocabulary, and models in GGUF files."""

"""GGUF files as checkpoints: their header, configuration, tokenizer and blocks of quantized weights."""

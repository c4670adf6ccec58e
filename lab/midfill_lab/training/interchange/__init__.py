"""Reads a base model from a GGUF file, and writes a trained model to one."""

"""Turns source files into training examples: fragments, formats and windows of tokens."""

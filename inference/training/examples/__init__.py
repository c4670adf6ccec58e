"""From source files to training examples: fragments, formats and windows of tokens."""

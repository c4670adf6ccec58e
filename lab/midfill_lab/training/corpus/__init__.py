"""The training corpus: licensed source files without duplicates, and the vocabulary."""

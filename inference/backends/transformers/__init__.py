"""Models of other families, on transformers' own modules."""

"""Runs models of other families on transformers' own modules."""

"""Chooses tokens: drawn with a seed, drafted and then verified, or other tokens for alternatives."""

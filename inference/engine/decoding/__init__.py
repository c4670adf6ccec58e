"""Chooses tokens: drawn with a seed, drafted and then verified, or other first tokens for alternatives."""

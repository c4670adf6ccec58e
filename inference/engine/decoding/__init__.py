"""Chooses tokens: drawn with a seed, drafted and then verified, and the best of several texts."""

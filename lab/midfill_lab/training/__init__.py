"""Trains small completion models with fragment tokenization on Python source that is already installed."""

"""Chooses tokens, drawn or drafted and then verified, and finds where other texts branch and what compares them."""

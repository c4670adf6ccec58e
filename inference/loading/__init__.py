"""Turns settings into an engine: the options, the plan of memory, and the wiring."""

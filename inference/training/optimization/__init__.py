"""Optimizers and the schedule of the learning rate."""

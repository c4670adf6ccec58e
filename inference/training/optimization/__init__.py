"""The optimizers, and the schedule of the learning rate."""

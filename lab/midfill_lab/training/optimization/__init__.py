"""The optimizers, the schedule of the learning rate, and the rounding of weights to GGUF's types."""

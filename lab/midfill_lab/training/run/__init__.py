"""A training run: model, steps, checkpoints, processes and held-out losses."""

"""One run of a training: model, steps, checkpoints, processes and held-out losses."""

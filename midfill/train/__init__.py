"""`midfill train`: trains a model on the user's own folders, from scratch or from a checkpoint."""

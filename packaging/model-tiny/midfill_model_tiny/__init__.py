"""The folder of the model `tiny`, for `importlib.resources`."""

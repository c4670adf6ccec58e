"""The folder of the model that midfill runs by default, for `importlib.resources`."""

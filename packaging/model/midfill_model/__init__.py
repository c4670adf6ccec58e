"""The folders of the models that midfill brings along, for `importlib.resources`."""

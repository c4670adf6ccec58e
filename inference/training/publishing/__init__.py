"""Turns a finished run into a model folder: export, model card and release."""

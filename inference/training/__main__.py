"""Runs the training commands as `python -m inference.training`."""

from inference.training.cli import app

app()

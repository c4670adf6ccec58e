"""Runs the training commands as `python -m midfill_lab.recipe`."""

from midfill_lab.recipe.cli import app

app()

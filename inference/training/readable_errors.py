"""Prints errors of bad input without a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from protocol.errors import BadInput


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print errors of bad input, without a traceback, and exit with status 2."""
    try:
        yield
    except BadInput as error:
        Console(stderr=True).print(f"error: {error}", markup=False, style="red")
        raise typer.Exit(2) from error

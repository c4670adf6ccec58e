"""Prints errors of bad input without a traceback."""

from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from protocol.errors import BadInput


class ReadableErrors(TyperGroup):
    """Commands that print errors of bad input, without a traceback, and exit with status 2."""

    def invoke(self, ctx: Any) -> Any:  # typer's own copy of click has no public name
        try:
            return super().invoke(ctx)
        except BadInput as error:
            Console(stderr=True).print(f"error: {error}", markup=False, style="red")
            raise typer.Exit(2) from error

"""Where commands print: lines wrap at the width of a terminal, and nowhere without one, where programs read them."""

from __future__ import annotations

from rich.console import Console

_ANY_WIDTH = 1_000_000


def open_console(*, stderr: bool = False) -> Console:
    """The console of the standard output, or with `stderr` of the standard error."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_ANY_WIDTH)

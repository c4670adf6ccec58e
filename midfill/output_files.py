"""Checks output files before a command's work begins, so that a path that cannot be written fails early."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import BadInput


def check_writable(path: Path | None) -> None:
    """BadInput if the file cannot be written; None and - stand for no file. A missing file is created, empty."""
    if path is None or path == Path("-"):
        return
    try:
        path.open("a").close()
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error

"""Files that a command writes when its work is done: whether it can is seen before it begins."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import BadInput


def check_writable(path: Path | None) -> None:
    """BadInput if nothing can be written there; None and - stand for no file. What is not there is made, empty."""
    if path is None or path == Path("-"):
        return
    try:
        path.open("a").close()
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error

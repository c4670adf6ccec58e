"""The store's exceptions.

StoreError
├── ReleasedMatchError  a match was used after its release
├── BadFileError        a saved file is truncated, corrupt, too large or of another model
└── FolderInUseError    another process keeps its saved pages in this folder
"""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """Base of the store's exceptions."""


class ReleasedMatchError(StoreError):
    """A match was used, or released again, after its release."""


class BadFileError(StoreError):
    """A saved file is unusable; the message names the file and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FolderInUseError(StoreError):
    """Another live process holds the folder of saved pages."""

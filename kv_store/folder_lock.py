"""A lock on a folder that ends with the process, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kv_store.errors import FolderInUseError

LOCK_NAME = "lock"

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FolderLock:
    """Held from construction to `release`. Raises FolderInUseError where somebody else holds it."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            raise FolderInUseError(f"{folder}: another process keeps its pages here") from error

    def release(self) -> None:
        """Let others have the folder; releasing twice is an error of the operating system's."""
        os.close(self._descriptor)

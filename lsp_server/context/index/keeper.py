"""Keeps the indexes of the workspace folders up to date: starts their process after changes, one at a time."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

SETTLE_S = 2.0  # after a change, for more of them
APART_S = 10.0  # between two scans
_OLD_S = 60.0  # a client may watch no files


class IndexKeeper:
    """Scans the folders soon after `changed`, in processes of low priority; the event loop only starts them."""

    def __init__(self) -> None:
        self._folders: Sequence[Path] = ()
        self._enabled = False
        self._last_scan = -_OLD_S
        self._is_due = False
        self._work: asyncio.Task[None] | None = None

    def use(self, folders: Sequence[Path], *, enabled: bool) -> None:
        """Scan these folders from now on, if that is enabled."""
        if (self._folders, self._enabled) != (folders, enabled):
            self._folders, self._enabled = folders, enabled
            self.changed()

    def changed(self) -> None:
        """Scan soon, since files have changed."""
        self._is_due = True
        if self._enabled and self._folders and (self._work is None or self._work.done()):
            self._work = asyncio.get_running_loop().create_task(self._scan_while_due())

    def used(self) -> None:
        """Scan soon if the last scan is old."""
        if time.monotonic() - self._last_scan > _OLD_S:
            self.changed()

    async def close(self) -> None:
        """End a scan that is under way; what it has read stays."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    async def _scan_while_due(self) -> None:
        while self._is_due and self._enabled:
            await asyncio.sleep(max(SETTLE_S, self._last_scan + APART_S - time.monotonic()))
            self._is_due, self._last_scan = False, time.monotonic()
            for folder in self._folders:
                await scan_apart(folder)
            self._last_scan = time.monotonic()


async def scan_apart(folder: Path) -> None:
    """Bring a folder's index up to date in a process of its own, which writes faults to stderr; the index stays then.

    If the caller is cancelled, the process ends.
    """
    # -P: `python -m` would find the modules of the folder that the editor was started in first.
    command = (sys.executable, "-P", "-m", "lsp_server.context.index", str(folder))
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except OSError as error:
        logger.warning("the index of %s cannot be kept: %s", folder, error)
        return
    try:
        status = await asyncio.to_thread(process.wait)
    except asyncio.CancelledError:
        process.kill()  # the thread, which goes on, waits for its end
        raise
    if status:
        logger.warning("the index of %s is not up to date: its process ended with status %d", folder, status)

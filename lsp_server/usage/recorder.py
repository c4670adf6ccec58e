"""Collects statistics and adds them to their database at intervals, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path

from lsp_server.usage.statistics import Statistics, add_to_file

logger = logging.getLogger(__name__)

_SAVE_SECONDS = 10.0


class Recorder:
    """Counts while it is `enabled`. A failed write keeps its counts, and is tried again with the next one."""

    def __init__(self, path: Path, save_s: float = _SAVE_SECONDS) -> None:
        self.enabled = True
        self._path = path
        self._save_s = save_s
        self._unsaved: list[Statistics] = []  # summed on saving: an answer waits for `count`
        self._saving: asyncio.Task[None] | None = None

    def count(self, more: Statistics) -> None:
        """Add statistics to be saved later."""
        if not self.enabled:
            return
        self._unsaved.append(more)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_later())

    def close(self) -> None:
        """Write the unsaved counts, and end. A write under way is finished by its thread before the process ends."""
        if self._saving is not None:
            self._saving.cancel()
        self._write(self._take())

    async def _save_later(self) -> None:
        await asyncio.sleep(self._save_s)
        await asyncio.to_thread(self._write, self._take())

    def _take(self) -> Statistics:
        unsaved, self._unsaved = self._unsaved, []
        return sum(unsaved, Statistics())

    def _write(self, more: Statistics) -> None:
        if more == Statistics():
            return
        try:
            add_to_file(self._path, more)
        except (OSError, sqlite3.Error) as error:
            logger.warning("cannot save the statistics: %s", error)
            self._unsaved.append(more)

"""Gathers statistics and adds them to their file now and then, off the event loop."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import filelock

from lsp_server.statistics import Statistics, add_to_file
from protocol.errors import MidfillError

logger = logging.getLogger(__name__)

_SAVE_SECONDS = 10.0


class Recorder:
    """Counts while it is `enabled`. What cannot be written is kept, and tried again with the next count."""

    def __init__(self, path: Path, save_s: float = _SAVE_SECONDS) -> None:
        self.enabled = True
        self._path = path
        self._save_s = save_s
        self._unsaved: list[Statistics] = []  # added up when they are saved: an answer waits while it is counted
        self._saving: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def count(self, more: Statistics) -> None:
        """Add to what is to be saved."""
        if not self.enabled:
            return
        self._unsaved.append(more)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_later())

    async def save(self) -> None:
        """Write what has been counted since the last time; return when what others began to write is there, too."""
        async with self._writing:
            unsaved, self._unsaved = self._unsaved, []
            if not unsaved:
                return
            more = sum(unsaved, Statistics())
            try:
                await asyncio.to_thread(add_to_file, self._path, more)
            except (OSError, MidfillError, filelock.Timeout) as error:
                logger.warning("the statistics were not saved: %s", error)
                self._unsaved.append(more)

    async def close(self) -> None:
        """Write what is left, and end."""
        if self._saving is not None:
            self._saving.cancel()
        await self.save()

    async def _save_later(self) -> None:
        await asyncio.sleep(self._save_s)
        await self.save()

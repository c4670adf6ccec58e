"""Collects counts and adds them to their database at intervals, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

from lsp_server.usage.database import add_to_file
from lsp_server.usage.statistics import Group, Statistics

logger = logging.getLogger(__name__)

_SAVE_SECONDS = 10.0


class Recorder:
    """Counts while it is `enabled`. A failed write keeps its counts, and is tried again with the next one."""

    def __init__(self, path: Path, model: Callable[[], str], save_s: float = _SAVE_SECONDS) -> None:
        self.enabled = True
        self._path = path
        self._model = model
        self._save_s = save_s
        self._unsaved: Counter[tuple[Group, str]] = Counter()
        self._saving: asyncio.Task[None] | None = None

    def group(self, language: str) -> Group:
        """What is counted now in a document of this language belongs to this group."""
        return Group(date.today().isoformat(), self._model(), language)

    def count(self, group: Group, more: Statistics) -> None:
        """Add statistics to be saved later."""
        if not self.enabled:
            return
        for name, count in more.counts:
            self._unsaved[group, name] += count
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_later())

    def close(self) -> None:
        """Write the unsaved counts, and end. A write under way is finished by its thread before the process ends."""
        if self._saving is not None:
            self._saving.cancel()
        self._unsaved = self._rest_of(self._take())

    async def _save_later(self) -> None:
        await asyncio.sleep(self._save_s)
        self._unsaved.update(await asyncio.to_thread(self._rest_of, self._take()))

    def _take(self) -> Counter[tuple[Group, str]]:
        unsaved, self._unsaved = self._unsaved, Counter()
        return unsaved

    def _rest_of(self, more: Counter[tuple[Group, str]]) -> Counter[tuple[Group, str]]:
        """Write these counts; returns those that could not be written."""
        if more:
            try:
                add_to_file(self._path, more)
            except (OSError, sqlite3.Error) as error:
                logger.warning("cannot save the statistics: %s", error)
                return more
        return Counter()

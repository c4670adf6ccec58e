"""Latest request wins: one computation at a time, and a newer one ends the older at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Runs the newest of several computations that may yield a T."""

    def __init__(self) -> None:
        self._current: asyncio.Task[T | None] | None = None

    def start(self, work: Coroutine[Any, Any, T | None]) -> asyncio.Task[T | None]:
        """Run `work` in the background, in place of what is running."""
        self.supersede()
        task = self._current = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, T | None]) -> T | None:
        """The result of `work`, or None as soon as something newer supersedes it; cancellable as usual."""
        task = self.start(work)
        try:
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()
        finally:
            task.cancel()  # does nothing once it is done
            self._ended(task)

    def supersede(self) -> None:
        """End what is running, if anything is."""
        if self._current is not None:
            self._current.cancel()
            self._current = None

    @property
    def busy(self) -> bool:
        """Whether something is running."""
        return self._current is not None

    def _ended(self, task: asyncio.Task[T | None]) -> None:
        if self._current is task:
            self._current = None

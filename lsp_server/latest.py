"""Latest request wins: one computation at a time, and a newer one ends the older at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Runs the newest of several computations."""

    def __init__(self) -> None:
        self._current: asyncio.Task[T] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, or None as soon as something newer supersedes it; cancellable as usual."""
        self.supersede()
        task = self._current = asyncio.create_task(work)
        try:
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()
        finally:
            task.cancel()  # does nothing once it is done
            if self._current is task:
                self._current = None

    def supersede(self) -> None:
        """End what is running, if anything is."""
        if self._current is not None:
            self._current.cancel()
            self._current = None

    @property
    def busy(self) -> bool:
        """Whether something is running."""
        return self._current is not None

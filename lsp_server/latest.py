"""Latest request wins: one computation at a time, and a newer one ends the older at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Runs the newest of several computations that may yield a T; `purpose` tells what one is for."""

    def __init__(self) -> None:
        self._current: asyncio.Task[T | None] | None = None
        self._purpose: object = None
        self._left: asyncio.Future[None] | None = None  # done when who waits is to wait no longer

    def start(self, work: Coroutine[Any, Any, T | None], purpose: object = None) -> asyncio.Task[T | None]:
        """Run `work` in the background, in place of what is running."""
        self.supersede()
        task = self._current = asyncio.create_task(work)
        self._purpose = purpose
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, T | None], purpose: object = None) -> T | None:
        """The result of `work`, or None as soon as something newer supersedes it; cancellable as usual."""
        return await self._wait(self.start(work, purpose))

    async def join(self) -> T | None:
        """The result of what is running, like `run`; who waited for it before gets None."""
        assert self._current is not None, "nothing is running"
        return await self._wait(self._current)

    def supersede(self) -> None:
        """End what is running, if anything is."""
        if self._current is not None:
            self._current.cancel()
            self._current = None
        self._leave()

    @property
    def busy(self) -> bool:
        """Whether something is running."""
        return self._current is not None

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for what is running."""
        return self._left is not None

    def is_for(self, purpose: object) -> bool:
        """Whether something is running, and for this."""
        return self._current is not None and self._purpose == purpose

    async def _wait(self, task: asyncio.Task[T | None]) -> T | None:
        self._leave()
        left = self._left = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
            return None if left.done() or task.cancelled() else task.result()
        finally:
            if not left.done():
                self._left = None
                task.cancel()  # does nothing once it is done
                self._ended(task)

    def _leave(self) -> None:
        if self._left is not None:
            self._left.set_result(None)
            self._left = None

    def _ended(self, task: asyncio.Task[T | None]) -> None:
        if self._current is task:
            self._current = None

"""Latest request wins: one computation at a time, and a newer one ends the older at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T | None]]


class Latest(Generic[T]):
    """Runs the newest of several computations that may yield a T; `purpose` tells what one is for."""

    def __init__(self) -> None:
        self._current: asyncio.Task[None] | None = None
        self._purpose: object = None
        self._awaited: asyncio.Future[T | None] | None = None  # what is waited for: the result, or None where it left

    def start(self, work: Work[T], purpose: object = None) -> None:
        """Run `work` in the background, in place of what is running."""
        self.supersede()
        self._current = asyncio.create_task(self._finish(work))
        self._purpose = purpose

    async def run(self, work: Work[T], purpose: object = None) -> T | None:
        """The result of `work`, or None as soon as something newer supersedes it; cancellable as usual."""
        self.start(work, purpose)
        return await self.join()

    async def join(self) -> T | None:
        """The result of what is running, like `run`; who waited for it before gets None."""
        assert self._current is not None, "nothing is running"
        self._leave()
        awaited: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._awaited = awaited
        try:
            return await awaited
        finally:
            if self._awaited is awaited:
                self.supersede()

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
        return self._awaited is not None

    def is_for(self, purpose: object) -> bool:
        """Whether something is running, and for this."""
        return self._current is not None and self._purpose == purpose

    async def _finish(self, work: Work[T]) -> None:
        """Work, and give the result or the error to who waits, if somebody does, before the task has ended.

        A callback of the task would come a turn of the event loop later.
        """
        result: T | None = None
        try:
            result = await work()
        except Exception as error:
            if self._current is not asyncio.current_task() or self._awaited is None or self._awaited.done():
                raise
            self._awaited.set_exception(error)
        finally:
            if self._current is asyncio.current_task():
                self._current = None
                self._leave(result)

    def _leave(self, result: T | None = None) -> None:
        """Let go of who waits, with this result."""
        if self._awaited is not None:
            if not self._awaited.done():
                self._awaited.set_result(result)
            self._awaited = None

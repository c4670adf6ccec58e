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
        self._awaited: asyncio.Future[T | None] | None = None  # what is waited for: the result, or None where it left

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
        return self._awaited is not None

    def is_for(self, purpose: object) -> bool:
        """Whether something is running, and for this."""
        return self._current is not None and self._purpose == purpose

    async def _wait(self, task: asyncio.Task[T | None]) -> T | None:
        self._leave()
        awaited: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._awaited = awaited
        task.add_done_callback(lambda done: _hand_over(done, awaited))
        try:
            return await awaited
        finally:
            if self._awaited is awaited:
                self._awaited = None
                task.cancel()  # does nothing once it is done
                self._ended(task)

    def _leave(self) -> None:
        if self._awaited is not None:
            if not self._awaited.done():
                self._awaited.set_result(None)
            self._awaited = None

    def _ended(self, task: asyncio.Task[T | None]) -> None:
        if self._current is task:
            self._current = None


def _hand_over(task: asyncio.Task[T | None], awaited: asyncio.Future[T | None]) -> None:
    """The task's result or error to who waits for it, if somebody still does."""
    if awaited.done():
        return
    if task.cancelled():
        awaited.set_result(None)
    elif (error := task.exception()) is not None:
        awaited.set_exception(error)
    else:
        awaited.set_result(task.result())

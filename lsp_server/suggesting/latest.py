"""Latest request wins: one computation at a time, and a newer one ends the older at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T | None]]


class Latest(Generic[T]):
    """Runs the newest of several computations that may yield a T; `purpose` identifies one."""

    def __init__(self) -> None:
        self._current: asyncio.Task[None] | None = None
        self._purpose: object = None
        self._awaited: asyncio.Future[T | None] | None = None  # the waiter's future: the result, or None if superseded

    def start(self, work: Work[T], purpose: object = None) -> None:
        """Run `work` in the background; it supersedes the running work."""
        self.supersede()
        self._current = asyncio.create_task(self._finish(work))
        self._purpose = purpose

    def run(self, work: Work[T], purpose: object = None) -> Coroutine[Any, Any, T | None]:
        """Start `work`; its result, or None as soon as something newer supersedes it; cancellable as usual."""
        self.start(work, purpose)
        return self.join()

    async def join(self) -> T | None:
        """The result of the running work, as from `run`; an earlier waiter gets None."""
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
        """End the running work, if any."""
        if self._current is not None:
            self._current.cancel()
            self._current = None
        self._leave()

    @property
    def busy(self) -> bool:
        return self._current is not None

    @property
    def awaited(self) -> bool:
        """Whether a caller waits for the running work."""
        return self._awaited is not None

    def is_for(self, purpose: object) -> bool:
        return self._current is not None and self._purpose == purpose

    async def _finish(self, work: Work[T]) -> None:
        """Run `work`, and pass its result or error to the waiter, if any, before the task ends.

        A callback of the task would run one turn of the event loop later.
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
        """Release the waiter with this result."""
        if self._awaited is not None:
            if not self._awaited.done():
                self._awaited.set_result(result)
            self._awaited = None

"""Runs an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

CLOSE_S = 5.0
"""Seconds that closing waits for the tasks' ends."""

Result = TypeVar("Result")


class EventLoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine; cancelling its future cancels it. From any thread."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        return future

    def end_tasks(self) -> None:
        """Cancel what was started, and wait for its end, and for that of the tasks it has started itself.

        Those are left to it: anyio warns of a task that another cancels before its first step.
        """
        for future in list(self._started):
            future.cancel()
        with suppress(TimeoutError):
            self.start(self._end_tasks()).result(CLOSE_S)

    def close(self) -> None:
        """Cancel what still runs, and stop the loop once it has ended."""
        self.end_tasks()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end_tasks(self) -> None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        await self._loop.shutdown_asyncgens()

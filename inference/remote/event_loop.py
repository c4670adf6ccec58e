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
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine; cancelling its future cancels it. From any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end_tasks(self) -> None:
        """Cancel what still runs, and wait for its end."""
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
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

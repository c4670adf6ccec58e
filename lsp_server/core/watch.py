"""Detects a core that hangs: pings its event loop while an answer is pending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from websockets.exceptions import WebSocketException

PING_AFTER_S = 1.0
READY_TIMEOUT_S = 3.0
# A core that imports torch or loads weights may be slow to answer a ping; one that has loaded is not.
LOADING_TIMEOUT_S = 60.0


class CoreWatch:
    """Pings from the first pending answer on, once per PING_AFTER_S, until none is pending."""

    def __init__(
        self, ping: Callable[[], Awaitable[None]], is_pending: Callable[[], bool], on_silence: Callable[[], None]
    ) -> None:
        """`ping` returns with the pong; the watch calls `on_silence` when that takes too long."""
        self.loaded = False  # whether the core has loaded its model
        self._ping = ping
        self._is_pending = is_pending
        self._on_silence = on_silence
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start watching: an answer is pending."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    def end(self) -> None:
        """Stop watching: the connection is closed."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        try:
            while self._is_pending():
                await asyncio.sleep(PING_AFTER_S)
                async with asyncio.timeout(READY_TIMEOUT_S if self.loaded else LOADING_TIMEOUT_S):
                    if self._is_pending():
                        await self._ping()
        except TimeoutError:
            self._on_silence()
        except WebSocketException:
            pass  # the connection has ended, which fails pending requests
        finally:
            self._task = None

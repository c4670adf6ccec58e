"""A bounded, thread-safe queue of the messages to send through one WebSocket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

MAX_UNSENT_CHARS = 4 * 2**20
"""A client with more unsent characters than this is dropped."""
STALLED_AFTER_S = 30.0
"""A client that reads nothing for this long is dropped."""
POLICY_VIOLATION = 1008

log = logging.getLogger(__name__)


class Outbox:
    """Sends messages in the order of the calls. Calls `drop` for a client that does not read."""

    def __init__(self, websocket: WebSocket, drop: Callable[[], None]) -> None:
        self._websocket = websocket
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue()
        self._reason = ""
        self._unsent = 0
        self._is_dropped = False

    def send(self, text: str) -> None:
        """Send a message, if the connection is still open; from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, text)

    async def run(self) -> None:
        """Send queued and new messages until cancelled."""
        while (text := await self._waiting.get()) is not None:
            try:
                async with asyncio.timeout(STALLED_AFTER_S):
                    await self._websocket.send_text(text)
            except TimeoutError:
                log.warning("dropping a client that has read nothing for %g s", STALLED_AFTER_S)
                self._drop()
            except (OSError, RuntimeError, WebSocketDisconnect):
                return  # the client has disconnected
            self._unsent -= len(text)
        await self._websocket.close(POLICY_VIOLATION, self._reason)

    def end(self, reason: str) -> None:
        """End the connection for this reason, after the messages so far; for the event loop's thread only."""
        self._reason = reason
        self._waiting.put_nowait(None)

    def _put(self, text: str) -> None:
        if self._is_dropped:
            return
        if self._unsent > MAX_UNSENT_CHARS:
            log.warning("dropping a client that has not read %d characters", self._unsent)
            self._is_dropped = True
            self._drop()
            return
        self._unsent += len(text)
        self._waiting.put_nowait(text)

"""The messages that wait to be sent through one WebSocket, bounded, from any thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

MAX_UNSENT_BYTES = 4 * 2**20
"""A client that lets more than this wait for it is dropped."""
STALLED_AFTER_S = 30.0
"""A client that takes nothing of what is sent for so many seconds is dropped."""

log = logging.getLogger(__name__)


class Outbox:
    """Sends messages in the order of the calls. A client that does not read is dropped, by `drop`."""

    def __init__(self, websocket: WebSocket, drop: Callable[[], None]) -> None:
        self._websocket = websocket
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._unsent = 0

    def send(self, text: str) -> None:
        """Send a message, if the connection is still open; from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, text)

    async def run(self) -> None:
        """Send what there is and what comes, until cancelled."""
        while True:
            text = await self._waiting.get()
            try:
                async with asyncio.timeout(STALLED_AFTER_S):
                    await self._websocket.send_text(text)
            except TimeoutError:
                log.warning("a client has read nothing for %g s, and is dropped", STALLED_AFTER_S)
                self._drop()
            except (OSError, RuntimeError, WebSocketDisconnect):
                return  # it has gone
            self._unsent -= len(text)

    def _put(self, text: str) -> None:
        self._unsent += len(text)
        if self._unsent - len(text) > MAX_UNSENT_BYTES:
            log.warning("a client has not read %d characters that were sent to it, and is dropped", self._unsent)
            self._drop()
        else:
            self._waiting.put_nowait(text)

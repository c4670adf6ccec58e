"""A WebSocket to a core that hands messages over as they arrive, without waking a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import broadcast
from websockets.frames import DATA_OPCODES, Frame

_MOST_UNSENT_BYTES = 1 << 24  # more than a thousand keys


class CoreConnection(ClientConnection):
    """websockets' connection without its queue of messages, and without waiting on send.

    Messages that arrive before `listen` are kept for it. websockets does not document that `process_event` gets every
    frame; the tests of this module check it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fragments: list[bytes] = []
        self._unheard: list[str] = []
        self._receive: Callable[[str], None] = self._unheard.append
        self._on_lost: Callable[[], None] | None = None

    def on_lost(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost

    def listen(self, receive: Callable[[str], None]) -> None:
        """Hand every message to `receive` in order; those kept so far immediately."""
        self._receive = receive
        for text in self._unheard:
            receive(text)

    def write(self, text: str) -> None:
        """Send a message without waiting; a closed connection ignores it.

        The connection ends if more than _MOST_UNSENT_BYTES wait to be sent: the other end does not read.
        """
        broadcast((self,), text)
        if self.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self.set_connection_exc(TimeoutError(f"the core has left {_MOST_UNSENT_BYTES} bytes unread"))
            self.transport.abort()

    def process_event(self, event: Any) -> None:
        """Called by websockets for the handshake's response, and then for each frame."""
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
            return
        self._fragments.append(bytes(event.data))
        if event.fin:
            text = b"".join(self._fragments).decode(errors="replace")
            self._fragments.clear()
            self._receive(text)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._on_lost is not None:
            self._on_lost()

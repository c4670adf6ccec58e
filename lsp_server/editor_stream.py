"""What a client sends, as it arrives: cut into messages, and these handled one after the other."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from pygls.exceptions import JsonRpcException

from lsp_server.framing import Framer

if TYPE_CHECKING:
    from lsp_server.server import MidfillServer

logger = logging.getLogger(__name__)

# Where so many bytes wait for their turn, no more are read.
_BACKLOG_BYTES = 1 << 20


class EditorStream(asyncio.Protocol):
    """Hands the messages of one client to its server, as soon as they are there: no task waits for them.

    The handler of each begins before the next message is handled: a request for a suggestion then sees the document
    as it was when the request was sent. To be made where an event loop runs.
    """

    def __init__(self, server: MidfillServer) -> None:
        self.server = server
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the client has said that it leaves, or is gone, and all it sent before is handled."""
        self._loop = asyncio.get_running_loop()
        self._framer = Framer()
        self._transport: asyncio.ReadTransport | None = None
        self._next: asyncio.Handle | None = None  # the turn of the next message
        self._paused = False
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._framer.feed(data)
        if self._next is None:
            self._handle_next()
        elif self._framer.buffered > _BACKLOG_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._leave()
        return True  # answers may still be on their way out

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            logger.info("the connection broke: %s", error)
        self._leave()

    def close(self) -> None:
        """Hear no more; what is on its way out still leaves."""
        if self._transport is not None:
            self._transport.close()

    def _leave(self) -> None:
        self._gone = True
        if self._next is None:
            self._end()

    def _handle_next(self) -> None:
        """Handle the next messages, up to one whose handler does not begin before the next turn of the event loop."""
        self._next = None
        handled = True
        while handled and not self.ended.done():
            try:
                body = self._framer.next_body()
                if body is None:
                    self._rest()
                    return
                handled = self.server.protocol.receive(body)
            except Exception as error:  # noqa: BLE001  # it is logged, and one message ends no session
                self.server.report_server_error(error, JsonRpcException)
            if self.server.protocol.stopped:
                self._end()
        if not handled:
            self._next = self._loop.call_soon(self._handle_next)

    def _rest(self) -> None:
        """Nothing that has come is left to be handled."""
        if self._gone:
            self._end()
        elif self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

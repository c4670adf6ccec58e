"""One WebSocket of the server: frames in and out, with no task or queue between the socket and who handles them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from inference.access import Access
from inference.http_fields import MAX_BODY_BYTES

PATH = "/ws"
PING_EVERY_S = 20.0
"""A client that has sent nothing between two pings, not even a pong, is gone."""

log = logging.getLogger(__name__)


class Handler(Protocol):
    """What is done with the messages of one connection; called in the event loop, and must not block."""

    def receive(self, message: str | bytes) -> None:
        """A whole message: of text, or binary."""
        ...

    def disconnected(self) -> None:
        """Nothing more comes, and nothing more can be sent."""
        ...


class WebSocketTransport(asyncio.Protocol):
    """The server's end of one WebSocket, as uvicorn's HTTP protocol hands its connection over for the upgrade.

    What is a frame and what is to be answered is for websockets' Sans-I/O protocol to know. uvicorn's own protocols
    hand every message to a task of an ASGI application, and every answer back to the event loop: a quarter of the
    time that a keystroke spends between the two processes.
    """

    def __init__(
        self, access: Access, connect: Callable[[WebSocketTransport], Handler], server_state: ServerState
    ) -> None:
        """`connect` is asked for a handler when the handshake is done."""
        self._access = access
        self._connect = connect
        self._connections = server_state.connections  # uvicorn ends those when it stops
        self._loop = asyncio.get_running_loop()
        self._handler: Handler | None = None
        self._fragments: list[bytes] = []
        self._binary = False
        self._alive = True
        self._lock = threading.RLock()  # guards all that follows: messages are sent from other threads too
        self._protocol = ServerProtocol(max_size=MAX_BODY_BYTES)
        self._thread = threading.get_ident()
        self._congested = False  # whether something waits in the transport
        self._unwritten = bytearray()  # by other threads, for the event loop to write

    def send(self, text: str) -> None:
        """Send a message, where the connection is still open; from any thread, in the order of the calls."""
        with self._lock:
            if self._protocol.state is OPEN:
                self._protocol.send_text(text.encode())
                self._flush()

    def shutdown(self) -> None:
        """End the connection, since the server stops."""
        with self._lock:
            if self._protocol.state is OPEN:
                self._protocol.send_close(CloseCode.GOING_AWAY)
                self._flush()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_protocol(self)
        transport.set_write_buffer_limits(high=0)  # so that it tells of everything that waits in it
        self._transport = transport
        self._descriptor = _descriptor(transport)
        self._connections.add(self)  # type: ignore[arg-type]
        self._pinging = self._loop.call_later(PING_EVERY_S, self._ping)

    def data_received(self, data: bytes) -> None:
        self._alive = True
        with self._lock:
            self._protocol.receive_data(data)
            events = self._protocol.events_received()
            self._flush()
        for event in events:
            if isinstance(event, Request):
                self._shake_hands(event)
            elif isinstance(event, Frame):
                self._collect(event)

    def eof_received(self) -> None:
        with self._lock:
            self._protocol.receive_eof()
            self._flush()

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._pinging.cancel()
        self._connections.discard(self)
        with self._lock:
            self._protocol.receive_eof()  # nothing can be sent any more
        if self._handler is not None:
            self._handler.disconnected()

    def _shake_hands(self, request: Request) -> None:
        with self._lock:
            self._protocol.send_response(self._refusal(request) or self._protocol.accept(request))
            self._flush()
        if self._protocol.state is OPEN:
            self._handler = self._connect(self)

    def _refusal(self, request: Request) -> Response | None:
        refusal = self._access.refusal(_header(request, "Origin"), _header(request, "Authorization"))
        if refusal is not None:
            return self._protocol.reject(HTTPStatus(refusal.status), refusal.message)
        if request.path.partition("?")[0] != PATH:
            return self._protocol.reject(HTTPStatus.NOT_FOUND, f"no WebSocket at {request.path}: only at {PATH}")
        return None

    def _collect(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._binary = frame.opcode is Opcode.BINARY
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            message = b"".join(self._fragments)
            self._fragments.clear()
            self._deliver(message)

    def _deliver(self, message: bytes) -> None:
        assert self._handler is not None, "a frame before the handshake"
        if self._binary:
            self._handler.receive(message)
            return
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            with self._lock:
                self._protocol.fail(CloseCode.INVALID_DATA, str(error))
                self._flush()
        else:
            self._handler.receive(text)

    def _flush(self) -> None:
        """Write what the protocol has to send; the lock is held."""
        for data in self._protocol.data_to_send():
            if not data:  # the end of the stream
                self._transport.close()
            elif threading.get_ident() == self._thread:
                self._write_rest()
                self._transport.write(data)
            else:
                self._write_directly(data)

    def _write_directly(self, data: bytes) -> None:
        """Write from another thread, past the event loop: to wake that first would take as long as all else.

        What the socket does not take at once is left to the loop, as is everything while something is.
        """
        written = 0
        if self._descriptor is not None and not (self._congested or self._unwritten):
            with contextlib.suppress(OSError):  # full, or broken: the loop will find that out, too
                written = os.write(self._descriptor, data)
        if written < len(data) and not self._loop.is_closed():
            self._unwritten += data[written:]
            self._loop.call_soon_threadsafe(self._write_rest)

    def _write_rest(self) -> None:
        with self._lock:
            if self._unwritten:
                self._transport.write(bytes(self._unwritten))
                self._unwritten.clear()

    def _ping(self) -> None:
        if not self._alive:
            log.info("a client has not answered for %g s", PING_EVERY_S)
            self._transport.abort()
            return
        self._alive = False
        with self._lock:
            if self._protocol.state is OPEN:
                self._protocol.send_ping(b"")
                self._flush()
        self._pinging = self._loop.call_later(PING_EVERY_S, self._ping)


def _descriptor(transport: asyncio.Transport) -> int | None:
    """The file descriptor of a socket that any thread may write to; None where only the event loop can."""
    plain = os.name == "posix" and transport.get_extra_info("sslcontext") is None
    return transport.get_extra_info("socket").fileno() if plain else None


def _header(request: Request, name: str) -> str | None:
    """A header's value; of one that came several times all of them, which then is no value that lets anybody in."""
    return ", ".join(request.headers.get_all(name)) if name in request.headers else None

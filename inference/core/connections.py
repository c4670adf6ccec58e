"""TCP connections of the core: their number, the time that one may stay open without presenting the token, and the
share of the event loop that a user's messages take.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

MOST_FILES = 65_536
FILES_FOR_OTHERS = 640
"""Descriptors that connections leave, to those being accepted or closed, the model, the store and the log."""
MOST_PENDING = 128
MAX_STRANGERS = 128
"""Most connections without the token; one more ends the oldest."""
TOKEN_WITHIN_S = 10.0
"""Seconds after which a connection that has not presented the token is ended."""
LAST_FRAME_S = 1.0

LOOP_SHARE = 0.1
"""Most of the event loop's time that one user's messages take in the long run."""
LOOP_CREDIT_S = 0.25
"""Seconds of the event loop that a user may take at once, as when an editor with many documents starts."""
MESSAGE_S = 1e-4  # of the event loop, to receive a frame
BYTE_S = 1e-8  # for each of its bytes
REQUEST_S = 1e-3  # to receive a request, and send its response
STRANGER_WAIT_S = 1.0
"""Longest wait of a request without a token: a flood from its address must not fail health checks, or a proof."""

_UNREADABLE = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"the headers are too many or too long for a WebSocket, or announce a body\n"
)

Address = tuple[object, object]
"""The client's host and port, and the core's: one client port may reach two ports of a core."""

log = logging.getLogger(__name__)


def raise_file_limit() -> int:
    """Raise the limit of open files as far as the system allows, and return the most connections it permits."""
    if sys.platform == "win32":  # no such limit
        return MOST_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("cannot raise the limit of %d open files to %d: %s", soft, wanted, error)
        else:
            soft = wanted
    limit = MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(limit // 2, limit - FILES_FOR_OTHERS)


class Connections:
    """The open connections, by address. For the event loop's thread only."""

    def __init__(self, max_open: int, max_strangers: int = MAX_STRANGERS, token_within_s: float = TOKEN_WITHIN_S) -> None:
        """`max_open` limits all connections, which leaves descriptors for files."""
        self._max_open = max_open
        self.backlog = max(1, min(MOST_PENDING, max_open // 8))
        """Pending connections. asyncio accepts up to so many in each turn of its loop, and closes one that is ended for
        another some turns after it accepted the other: those of all these turns must find a descriptor.
        """
        self._max_strangers = max_strangers
        self._token_within_s = token_within_s
        self._open: dict[Address, asyncio.Transport] = {}
        self._strangers: dict[Address, asyncio.TimerHandle] = {}  # with their deadlines; the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def made(self, address: Address, transport: asyncio.Transport) -> None:
        """Register a new connection; it counts as a stranger until it is admitted."""
        if len(self._open) >= self._max_open and not self._strangers:
            transport.abort()
            return
        if len(self._strangers) >= self._max_strangers or len(self._open) >= self._max_open:
            self.abort(next(iter(self._strangers)))
        loop = asyncio.get_running_loop()
        self._open[address] = transport
        self._strangers[address] = loop.call_later(self._token_within_s, self.abort, address)

    def admit(self, address: Address) -> None:
        """Mark the connection as having presented the token."""
        deadline = self._strangers.pop(address, None)
        if deadline is not None:
            deadline.cancel()

    def lost(self, address: Address) -> None:
        """Remove a connection that has ended."""
        self.admit(address)
        self._open.pop(address, None)

    def abort_soon(self, address: Address) -> None:
        """End the connection once there was time to send its last frame."""
        asyncio.get_running_loop().call_later(LAST_FRAME_S, self.abort, address)

    def abort(self, address: Address) -> None:
        """End the connection at once; unsent data is dropped."""
        transport = self._open.get(address)
        self.lost(address)
        if transport is not None:
            transport.abort()


class LoopShares:
    """Holds back users who send more than the event loop can take besides others' messages. For its thread only."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}  # by turn, when what was taken is paid for, by the loop's time

    async def pay(self, turn: str, seconds: float, longest_s: float = math.inf) -> None:
        """Let others go first, and wait while the user has taken LOOP_CREDIT_S more than their share.

        What a wait of `longest_s` does not pay for is remitted.
        """
        now = asyncio.get_running_loop().time()
        oldest = now - LOOP_CREDIT_S / LOOP_SHARE
        if turn not in self._due:
            self._due = {other: due for other, due in self._due.items() if due > oldest}
        due = max(self._due.get(turn, oldest), oldest) + seconds / LOOP_SHARE
        self._due[turn] = min(due, now + longest_s)
        await asyncio.sleep(max(0.0, self._due[turn] - now))


class BoundedHttp(H11Protocol):
    """uvicorn's HTTP protocol, which reports its connection."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bounds = connections
        self._address: Address = (None, None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client, self.server
        self._bounds.made(self._address, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._bounds.lost(self._address)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, which takes a connection over from BoundedHttp and reports its end."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bounds = connections

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._bounds.lost((self.client, self.server))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # Its headers are too long, too many, or announce a body: uvicorn would leave it unanswered.
            self.transport.write(_UNREADABLE)
            self.transport.close()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, which logs a traceback for each text that is not UTF-8."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError as error:
                self.conn.send_close(CloseCode.INVALID_DATA, f"not UTF-8: {error.reason} at byte {error.start}")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """As uvicorn's, which fails if the client has sent a bad frame before the handshake's end."""
        if self.conn.close_sent is None:
            self.transport.close()
        else:
            super().handle_parser_exception()

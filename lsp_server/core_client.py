"""One connection to an inference core: requests and answers over its WebSocket, cancellation, errors as exceptions."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.protocol import State

from lsp_server.core_connection import CoreConnection
from protocol.errors import BadInput, CoreUnavailable, Unauthorized, error_from_code
from protocol.messages import PROTOCOL_VERSION, Completion, CompletionRequest, CoreStatus
from protocol.wire import (
    Cancel,
    ClientMessage,
    Complete,
    Completed,
    Failed,
    Forget,
    Release,
    StatusChanged,
    decode_core,
    encode,
)

logger = logging.getLogger(__name__)

_OPEN_TIMEOUT_S = 10
_CLOSE_TIMEOUT_S = 1
# A core that imports torch or loads weights may be slow to answer a ping.
_PING_TIMEOUT_S = 60
_REFUSED = frozenset({401, 403})
_POLICY_VIOLATION = 1008


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a core listens, and what it wants to be shown."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"


class CoreClient:
    """An open connection; `wait_closed` returns when it ends, and whatever was pending then fails."""

    def __init__(self, socket: CoreConnection, url: str, on_status: Callable[[CoreStatus], None]) -> None:
        self._socket = socket
        self._url = url
        self._on_status = on_status
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Completion]] = {}
        socket.on_lost(self._lost)
        asyncio.get_running_loop().call_soon(socket.listen, self._receive)  # not before its caller has the client

    @classmethod
    async def open(cls, endpoint: Endpoint, on_status: Callable[[CoreStatus], None]) -> CoreClient:
        """Connect; Unauthorized if the token is refused, CoreUnavailable if nobody answers as a core does."""
        local = urlsplit(endpoint.url).hostname in ("127.0.0.1", "::1", "localhost")
        try:
            socket = await connect(
                endpoint.url,
                additional_headers={"Authorization": f"Bearer {endpoint.token}"},
                compression=None,
                open_timeout=_OPEN_TIMEOUT_S,
                close_timeout=_CLOSE_TIMEOUT_S,
                ping_timeout=_PING_TIMEOUT_S,
                proxy=None if local else True,
                create_connection=CoreConnection,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            if status in _REFUSED:
                raise Unauthorized(f"the core at {endpoint.url} refused the token (HTTP {status})") from error
            raise CoreUnavailable(f"{endpoint.url} answered with HTTP {status}: not a core") from error
        except (OSError, WebSocketException, ValueError) as error:  # ValueError: not a URL
            raise CoreUnavailable(f"no core answers at {endpoint.url}: {error}") from error
        assert isinstance(socket, CoreConnection)
        return cls(socket, endpoint.url, on_status)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask and wait; when cancelled, the core is told.

        CoreUnavailable if the connection ends first, and the error that the core names if it fails.
        """
        if self._socket.state is not State.OPEN:
            raise CoreUnavailable(f"the connection to {self._url} is closed")
        message_id = next(self._ids)
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._pending[message_id] = answer
        try:
            self._send(Complete(message_id, request))
            return await answer
        except asyncio.CancelledError:
            self._send(Cancel(message_id))
            raise
        finally:
            del self._pending[message_id]

    def forget(self, session: str) -> None:
        """Let the core drop the text of the session's document."""
        self._send(Forget(session))

    def release(self, session: str) -> None:
        """Tell the core that the session's document was closed."""
        self._send(Release(session))

    async def wait_closed(self) -> None:
        """Return when the connection has ended; Unauthorized if the core ended it over the token."""
        await self._socket.wait_closed()
        if self._socket.close_code == _POLICY_VIOLATION:
            raise Unauthorized(f"the core at {self._url} refused the token: {self._socket.close_reason}")

    async def close(self) -> None:
        """End the connection; at once where the core does not take what is sent."""
        try:
            async with asyncio.timeout(2 * _CLOSE_TIMEOUT_S):  # websockets' own does not count for what waits before it
                await self._socket.close()
        except TimeoutError:
            self._socket.transport.abort()
            await self._socket.wait_closed()

    def _send(self, message: ClientMessage) -> None:
        self._socket.write(encode(message))

    def _lost(self) -> None:
        logger.info("the connection to %s has ended: %s", self._url, self._socket.protocol.close_exc)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(CoreUnavailable(f"the core at {self._url} went away"))

    def _receive(self, text: str) -> None:
        try:
            message = decode_core(text)
        except BadInput as error:
            logger.error("from the core: %s", error)
            return
        if isinstance(message, StatusChanged):
            if message.protocol_version != PROTOCOL_VERSION:
                logger.error("the core speaks protocol %d, not %d", message.protocol_version, PROTOCOL_VERSION)
            try:
                self._on_status(message.status)
            except Exception:
                logger.exception("the core's status %s could not be told", message.status.state)
        else:
            self._settle(message)

    def _settle(self, message: Completed | Failed) -> None:
        if message.id is None:
            logger.error("the core could not read a message: %s", message.message)
            return
        answer = self._pending.get(message.id)
        if answer is None or answer.done():
            return  # cancelled meanwhile
        if isinstance(message, Completed):
            answer.set_result(message.completion)
        else:
            answer.set_exception(error_from_code(message.code, message.message))

"""A connection to an inference core: its proof, requests and answers over its WebSocket, and errors as exceptions."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import os
import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import broadcast
from websockets.exceptions import ConnectionClosedError, InvalidStatus, WebSocketException
from websockets.protocol import State

from protocol.errors import BadInput, CoreBlocked, CoreSilent, CoreUnavailable, MidfillError, Unauthorized, error_from_code
from protocol.messages import PROTOCOL_VERSION, Completion, CompletionRequest, CoreMemory, CoreStatus
from protocol.tokens import PROOF_PATH, proof, token_digest, token_id
from protocol.wire import (
    Cancel,
    ClientMessage,
    Complete,
    Completed,
    Describe,
    Described,
    Failed,
    Forget,
    Free,
    Kept,
    Prefilled,
    Release,
    StatusChanged,
    Stop,
    StopHow,
    Unload,
    decode_core,
    encode,
    read_envelope,
)


def in_words(error: Exception) -> str:
    """The error in words, without numbers of errors and calls: asyncio's text names both."""
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno).lower()
    if isinstance(error, socket.gaierror):
        return (error.strerror or str(error)).lower()
    return str(error)


_TIMEOUT_S = 2.0
_LONGEST_ANSWER = 256


async def check_proof(url: str, token: str) -> None:
    """Return if the core at this `ws://` address knows the token.

    Raises CoreUnavailable if nothing listens, CoreSilent if the answer takes too long, and Unauthorized if the answer
    does not prove knowledge of the token.
    """
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    named = address.netloc.rpartition("@")[2]
    nonce, user_id = secrets.token_hex(16), token_id(token)
    query = f"nonce={nonce}&id={user_id}" if user_id else f"nonce={nonce}"
    expected = proof(token_digest(token), nonce, named) if user_id else proof(token, nonce, port)
    try:
        async with asyncio.timeout(2 * _TIMEOUT_S):  # the thread's own timeout restarts at every byte
            answer = await asyncio.to_thread(_ask, host, port, named, query)
    except TimeoutError as error:
        raise CoreSilent(f"the core at {url} does not answer") from error
    except HTTPException as error:
        raise CoreUnavailable(f"{url} does not answer as a core does: {error!r}") from error
    except OSError as error:
        raise CoreUnavailable(f"no core answers at {url}: {in_words(error)}") from error
    if not hmac.compare_digest(answer, expected.encode()):
        if user_id:
            raise Unauthorized(f"the server at {url} does not know this token: it was revoked, or that is not the core")
        raise Unauthorized(f"the server at {url} does not know this machine's token: it is not a core, or not yours")


def _ask(host: str, port: int, named: str, query: str) -> bytes:
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", f"{PROOF_PATH}?{query}", headers={"Host": named})
        return connection.getresponse().read(_LONGEST_ANSWER)
    finally:
        connection.close()


logger = logging.getLogger(__name__)

_OPEN_TIMEOUT_S = 10
_CLOSE_TIMEOUT_S = 1
_REFUSED = frozenset({401, 403})
_POLICY_VIOLATION = 1008
_MOST_UNSENT_BYTES = 1 << 24  # more than a thousand keys
# A core that hangs is found by pings of its event loop, while an answer is pending.
_PING_AFTER_S = 1.0
_READY_TIMEOUT_S = 3.0
# A core that imports torch or loads weights may be slow to answer a ping; one that has loaded is not.
_LOADING_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of a core, and the token that it requires."""

    url: str
    token: str = field(repr=False)
    own: bool = False  # the token is this machine's own: sent only to a core that proves that it knows it
    differs: str = ""  # how the core's settings differ from the requested ones

    async def check(self) -> None:
        """Have the core prove that it knows the token, before the token is sent to it; Unauthorized if it does not.

        With TLS the certificate proves who answers; a configured core's own token has no id to prove it by.
        """
        if self.own or (token_id(self.token) and urlsplit(self.url).scheme == "ws"):
            await check_proof(self.url, self.token)


OnPrefill = Callable[[str, tuple[int, int] | None], None]
"""Receives the session whose prompt is being prefilled for long, its resident tokens and all; None at the end."""


class CoreClient:
    """An open connection; `wait_closed` returns when it ends, and all pending requests then fail."""

    def __init__(
        self,
        socket: ClientConnection,
        url: str,
        on_status: Callable[[CoreStatus], None],
        on_kept: Callable[[str], None],
        on_prefill: OnPrefill,
    ) -> None:
        self._on_prefill = on_prefill
        self._prefilling: set[str] = set()  # sessions of which the core has said that their prefill takes long
        self._sessions: dict[int, str] = {}  # of the pending requests
        self._socket = socket
        self._url = url
        self._on_status = on_status
        self._on_kept = on_kept
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}  # Completion or CoreMemory
        self._error: CoreUnavailable | None = None  # why this side has ended the connection
        self._loaded = False  # whether the core has loaded its model
        self._watching: asyncio.Task[None] | None = None
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        on_status: Callable[[CoreStatus], None],
        on_kept: Callable[[str], None] = lambda _: None,
        on_prefill: OnPrefill = lambda *_: None,
    ) -> CoreClient:
        """Connect. If the core refuses a `stop`, the client calls `on_kept` with the core's reason.

        Unauthorized if the core refuses the token or does not prove that it knows it, CoreUnavailable if there is none.
        """
        await endpoint.check()
        local = urlsplit(endpoint.url).hostname in ("127.0.0.1", "::1", "localhost")
        try:
            socket = await connect(
                endpoint.url,
                additional_headers={"Authorization": f"Bearer {endpoint.token}"},
                compression=None,
                open_timeout=_OPEN_TIMEOUT_S,
                close_timeout=_CLOSE_TIMEOUT_S,
                ping_timeout=_LOADING_TIMEOUT_S,
                proxy=None if local else True,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            if status in _REFUSED:
                raise Unauthorized(f"the core at {endpoint.url} refused the token (HTTP {status})") from error
            raise CoreUnavailable(f"{endpoint.url} answered with HTTP {status}: not a core") from error
        except (OSError, WebSocketException, ValueError) as error:  # ValueError: not a URL
            raise CoreUnavailable(f"no core answers at {endpoint.url}: {in_words(error)}") from error
        return cls(socket, endpoint.url, on_status, on_kept, on_prefill)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Send the request and wait for the completion; a cancelled call also cancels the request in the core.

        CoreUnavailable if the connection ends first, and the error that the core names if it fails.
        """
        message = Complete(next(self._ids), request)
        self._sessions[message.id] = request.session
        try:
            completion: Completion = await self._sent(message)
        except asyncio.CancelledError:
            self._send(Cancel(message.id))
            raise
        except MidfillError:
            self._end_prefill(request.session)
            raise
        finally:
            self._pending.pop(message.id, None)
            del self._sessions[message.id]
        self._end_prefill(request.session)
        return completion

    async def memory(self) -> CoreMemory:
        """The core's memory and disk in use; errors as from `complete`."""
        memory: CoreMemory = await self._ask(Describe(next(self._ids)))
        return memory

    async def free(self, *, disk: bool) -> CoreMemory:
        """Make the core drop resident KV, with `disk` also what is saved; what it holds then."""
        memory: CoreMemory = await self._ask(Free(next(self._ids), disk))
        return memory

    async def _ask(self, message: Describe | Free) -> Any:
        try:
            return await self._sent(message)
        finally:
            self._pending.pop(message.id, None)

    def _sent(self, message: Complete | Describe | Free) -> asyncio.Future[Any]:
        """Send a message; its answer, pending until the caller has it. CoreUnavailable if the connection is closed."""
        if self._socket.state is not State.OPEN:
            raise CoreUnavailable(f"the connection to {self._url} is closed")
        answer = self._pending[message.id] = asyncio.get_running_loop().create_future()
        self._send(message)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return answer

    def forget(self, session: str) -> None:
        self._send(Forget(session))

    def release(self, session: str) -> None:
        self._send(Release(session))

    def unload(self) -> None:
        self._send(Unload())

    def stop(self, how: StopHow) -> None:
        """Tell the core to exit: the connection ends, or `on_kept` gets the reason of the refusal."""
        self._send(Stop(how))

    async def wait_closed(self) -> None:
        """Return when the connection has ended.

        Unauthorized if the core ended it over the token, CoreSilent if it did not answer, CoreBlocked if its
        protocol has another version.
        """
        await asyncio.wait((self._reading,))
        if self._error is not None:
            raise self._error
        if self._socket.close_code == _POLICY_VIOLATION:
            raise Unauthorized(f"the core at {self._url} refused the token: {self._socket.close_reason}")

    async def close(self) -> None:
        """End the connection; at once if the core does not read."""
        if self._watching is not None:
            self._watching.cancel()
        try:
            async with asyncio.timeout(2 * _CLOSE_TIMEOUT_S):  # websockets' own timeout excludes the wait before it
                await self._socket.close()
        except TimeoutError:
            self._socket.transport.abort()
        await asyncio.wait((self._reading,))

    def _send(self, message: ClientMessage) -> None:
        """Send a message without waiting. A closed connection ignores it; one that the core does not read ends."""
        broadcast((self._socket,), encode(message))
        if self._socket.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self._leave(CoreSilent(f"the core at {self._url} has left {_MOST_UNSENT_BYTES} bytes unread"))

    async def _watch(self) -> None:
        """Ping from the first pending answer on, once per _PING_AFTER_S, until none is pending."""
        try:
            while self._pending:
                await asyncio.sleep(_PING_AFTER_S)
                async with asyncio.timeout(_READY_TIMEOUT_S if self._loaded else _LOADING_TIMEOUT_S):
                    if self._pending:
                        await (await self._socket.ping())
        except TimeoutError:
            self._leave(CoreSilent(f"the core at {self._url} does not answer"))
        except WebSocketException:
            pass  # the connection has ended, which fails pending requests
        finally:
            self._watching = None

    def _leave(self, error: CoreUnavailable) -> None:
        """End the connection at once, for this reason."""
        self._error = error
        self._socket.transport.abort()

    async def _read(self) -> None:
        """Receive messages until the connection ends, which fails the pending requests."""
        try:
            async for text in self._socket:
                self._receive(text)
        except ConnectionClosedError as error:
            logger.info("the connection to %s has ended: %s", self._url, error)
        finally:
            self._socket.transport.abort()
            self._fail_pending(self._error or CoreUnavailable(f"the core at {self._url} went away"))

    def _fail_pending(self, error: MidfillError) -> None:
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(error)

    def _receive(self, text: str | bytes) -> None:
        try:
            message = decode_core(text)
        except BadInput as error:
            self._receive_unreadable(text, error)
            return
        if isinstance(message, StatusChanged):
            self._hear(message)
        elif isinstance(message, Kept):
            self._on_kept(message.reason)
        elif isinstance(message, Prefilled):
            self._hear_prefill(message)
        else:
            self._settle(message)

    def _hear_prefill(self, message: Prefilled) -> None:
        session = self._sessions.get(message.id)
        if session is not None and message.of > 0:
            self._prefilling.add(session)
            self._on_prefill(session, (message.tokens, message.of))

    def _end_prefill(self, session: str) -> None:
        if session in self._prefilling:
            self._prefilling.remove(session)
            self._on_prefill(session, None)

    def _receive_unreadable(self, text: str | bytes, error: BadInput) -> None:
        """Fail the request that the message names, or all requests if it names none."""
        logger.error("from the core: %s", error)
        envelope = read_envelope(text)
        if envelope.protocol_version is not None:
            self._check_version(envelope.protocol_version)
        elif envelope.id is None:
            self._fail_pending(error)
        elif (answer := self._pending.get(envelope.id)) is not None and not answer.done():
            answer.set_exception(error)

    def _hear(self, message: StatusChanged) -> None:
        if not self._check_version(message.protocol_version):
            return
        self._loaded = message.status.state == "ready"
        try:
            self._on_status(message.status)
        except Exception:
            logger.exception("the handler of the core's status %s failed", message.status.state)

    def _check_version(self, version: int) -> bool:
        if version != PROTOCOL_VERSION:
            self._leave(
                CoreBlocked(
                    f"the core at {self._url} speaks version {version} of the protocol, and this midfill version "
                    f"{PROTOCOL_VERSION}: install the same version of midfill on both sides"
                )
            )
        return version == PROTOCOL_VERSION

    def _settle(self, message: Completed | Described | Failed) -> None:
        if message.id is None:
            logger.error("the core could not read a message: %s", message.message)
            self._fail_pending(error_from_code(message.code, message.message))
            return
        answer = self._pending.get(message.id)
        if answer is None or answer.done():
            return  # cancelled meanwhile
        if isinstance(message, Completed):
            answer.set_result(message.completion)
        elif isinstance(message, Described):
            answer.set_result(message.memory)
        else:
            answer.set_exception(error_from_code(message.code, message.message))

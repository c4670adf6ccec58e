"""The WebSocket of the midfill protocol: passes the messages of `protocol.wire` to and from the scheduler."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from inference.core.admission import SUBPROTOCOL
from inference.core.connections import BYTE_S, MESSAGE_S, Address, Connections, LoopShares
from inference.core.http.text_anchors import TextAnchors
from inference.core.lifecycle import ConnectedClients, Shutdown
from inference.core.scheduler import Scheduler
from inference.core.users import User
from inference.engine.request import Request, turn_of
from inference.engine.sessions import session_key
from protocol.errors import BadInput, Busy, Cancelled, MidfillError
from protocol.messages import PROTOCOL_VERSION, CoreStatus
from protocol.wire import (
    Cancel,
    ClientMessage,
    Complete,
    Completed,
    CoreMessage,
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
    Unload,
    decode_client,
    encode,
    read_envelope,
)

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


LONG_PREFILL_S = 1.0
"""Seconds after which a client is notified how far the prefill of a session's prompt is."""

TELL_EVERY_S = 0.2


@dataclass(slots=True)
class WebSocketApi:
    """Serves every connection with one scheduler."""

    _scheduler: Scheduler
    _clients: ConnectedClients
    _connections: Connections
    _shutdown: Shutdown
    _anchors: TextAnchors  # of HTTP clients, which a user's exclusion drops too
    _shares: LoopShares
    _open: dict[tuple[Address, str], Outbox] = field(default_factory=dict)  # by address and the id of the token
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def serve(self, websocket: WebSocket) -> None:
        """Handle a connection until it ends; sends the client the core's status now and at every change."""
        scope = websocket.scope
        address, user = (scope["client"], scope["server"]), scope["user"]
        outbox = self._open[address, user.token_id] = Outbox(websocket, partial(self._connections.abort, address))
        try:
            await self._serve(websocket, outbox, user)
        finally:
            del self._open[address, user.token_id]

    async def _serve(self, websocket: WebSocket, outbox: Outbox, user: User) -> None:
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None)
        name = f"ws-{next(self._numbers)}"
        forget_anchors = partial(self._anchors.forget, user.name)
        connection = Connection(outbox.send, self._scheduler, self._clients, self._shutdown, name, user, forget_anchors)
        sending = asyncio.create_task(outbox.run())
        try:
            while (message := await websocket.receive())["type"] != "websocket.disconnect":
                started, content = time.thread_time(), _content(message)
                connection.receive(content)
                cost = MESSAGE_S + BYTE_S * len(content) + time.thread_time() - started
                await self._shares.pay(turn_of(name, user.name), cost)
        finally:
            connection.disconnected()
            sending.cancel()

    def close_revoked(self, token_ids: Collection[str]) -> None:
        """End the connections that were opened with these tokens."""
        for (address, token_id), outbox in self._open.items():
            if token_id in token_ids:
                outbox.end("the token was revoked")
                self._connections.abort_soon(address)


@dataclass(slots=True)
class _Prefill:
    """The prefill of a session's prompt, over all requests that took part; seconds by time.monotonic()."""

    due: float  # when to notify the client next
    went_on: float  # after its last forward


class Connection:
    """One client. Its unanswered requests are cancelled when it disconnects."""

    def __init__(
        self,
        send: Callable[[str], None],
        scheduler: Scheduler,
        clients: ConnectedClients,
        shutdown: Shutdown,
        name: str,
        user: User | None = None,
        forget_anchors: Callable[[], None] = lambda: None,
    ) -> None:
        """`send` is called from any thread, and must not block; `forget_anchors` drops those of the user."""
        self._user = user or User()
        self._forget_anchors = forget_anchors
        self._send_text = send
        self._scheduler = scheduler
        self._shutdown = shutdown
        self._clients = clients
        self._name = name
        self._lock = threading.RLock()  # a submission may answer an older request
        self._requests: dict[int, Request] = {}  # by the client's id; guarded by the lock
        self._prefills: dict[str, _Prefill] = {}  # by session; guarded, too
        self._listening = ExitStack()
        self._listening.enter_context(clients.listen(lambda _: self._announce()))
        self._announce()

    def receive(self, message: str | bytes) -> None:
        """Execute the client's message; answer an unreadable one with the reason."""
        try:
            self._handle(_decode(message))
        except (BadInput, Busy) as error:
            self._send(Failed(read_envelope(message).id, error.code, str(error)))

    def disconnected(self) -> None:
        """Cancel the client's unanswered requests."""
        self._listening.close()
        self._shutdown.withdraw(self._name)
        with self._lock:
            for request in tuple(self._requests.values()):
                self._scheduler.cancel(request)

    def _handle(self, message: ClientMessage) -> None:
        if isinstance(message, Complete):
            self._submit(message)
        elif isinstance(message, Cancel):
            with self._lock:
                request = self._requests.get(message.id)
            if request is not None:  # else the answer is already being sent
                self._scheduler.cancel(request)
        elif isinstance(message, Forget):
            self._forget_anchors()
            self._scheduler.forget(session_key(message.session, self._user.name), self._name)
        elif isinstance(message, Release):
            with self._lock:
                self._prefills.pop(message.session, None)
            self._scheduler.release(session_key(message.session, self._user.name), self._name)
        elif isinstance(message, Describe):
            self._send(Described(message.id, self._scheduler.memory()))
        elif isinstance(message, Free) and not self._user.is_owner:
            why = "other users need what is resident: only the core's own token may free it"
            self._send(Failed(message.id, BadInput.code, why))
        elif not self._user.is_owner:
            self._send(Kept("other users need it: only the core's own token may stop it or unload its model"))
        elif isinstance(message, Unload):
            self._scheduler.unload()
        elif isinstance(message, Free):
            self._scheduler.free(partial(self._freed, message.id), disk=message.disk)
        elif isinstance(message, Stop):
            self._stop(message)

    def _stop(self, message: Stop) -> None:
        reason = self._shutdown.ask(self._name, message.how)
        if reason:
            self._send(Kept(reason))
        elif self._shutdown.stopped:
            self._clients.announce(self._scheduler.status)  # every connection reports that the core stops

    def _freed(self, message_id: int, error: MidfillError | None) -> None:
        if error is None:
            self._send(Described(message_id, self._scheduler.memory()))
        else:
            self._send(Failed(message_id, error.code, str(error)))

    def _submit(self, message: Complete) -> None:
        with self._lock:
            if message.id in self._requests:
                self._send(Failed(message.id, BadInput.code, f"request {message.id} is still running"))
                return
            session = message.request.session
            request = Request(message.request, self._name, self._user.name, partial(self._changed, message.id, session))
            self._requests[message.id] = request
            try:
                self._scheduler.submit(request)
            except (Busy, Cancelled) as error:
                del self._requests[message.id]
                again = f"; try again in {error.retry_after_s} s" if isinstance(error, Busy) else ""
                self._send(Failed(message.id, error.code, f"{error}{again}"))

    def _changed(self, client_id: int, session: str, request: Request) -> None:
        """Send the outcome, or how far the prefill is; usually called on the model thread."""
        with self._lock:
            if request.outcome is None:
                self._report_prefill(client_id, session, request)
                return
            del self._requests[client_id]
            if not isinstance(request.outcome, Cancelled):
                self._prefills.pop(session, None)
        if isinstance(request.outcome, MidfillError):
            self._send(Failed(client_id, request.outcome.code, str(request.outcome)))
        else:
            self._send(Completed(client_id, request.completion()))

    def _report_prefill(self, client_id: int, session: str, request: Request) -> None:
        """Send how far a prefill is, at intervals, if it takes long.

        A request that supersedes another one continues its prefill, so the time counts from the first of them.
        """
        now = time.monotonic()
        prefill = self._prefills.get(session)
        if prefill is None or now - prefill.went_on > LONG_PREFILL_S:
            prefill = self._prefills[session] = _Prefill(now + LONG_PREFILL_S, now)
        prefill.went_on = now
        if now >= prefill.due and client_id in self._requests:
            prefill.due = now + TELL_EVERY_S
            self._send(Prefilled(client_id, request.prefilled, request.cost.prompt_tokens))

    def _announce(self) -> None:
        with self._lock:  # the lock orders the messages: the last one sent is the current status
            status = self._scheduler.status
            if self._shutdown.stopped:
                status = CoreStatus("stopped", status.model)
            self._send(StatusChanged(status, PROTOCOL_VERSION))

    def _send(self, message: CoreMessage) -> None:
        self._send_text(encode(message))


def _content(message: Message) -> str | bytes:
    """A frame's content; ASGI sets `text` or `bytes`, and may set the other to None."""
    text: str | None = message.get("text")
    return text if text is not None else message["bytes"]


def _decode(message: str | bytes) -> ClientMessage:
    if isinstance(message, bytes):
        raise BadInput("binary frames are not supported: send JSON text")
    return decode_client(message)

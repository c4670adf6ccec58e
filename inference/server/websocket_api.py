"""The core's side of the midfill protocol: passes the messages of `protocol.wire` to and from the scheduler."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from starlette.types import Message
from starlette.websockets import WebSocket

from inference.scheduling.job_queue import Outcome
from inference.scheduling.scheduler import Scheduler
from inference.server.access import SUBPROTOCOL
from inference.server.clients import Presence
from inference.server.connections import Connections
from inference.server.outbox import Outbox
from inference.server.retirement import Retirement
from protocol.errors import BadInput, Busy, Cancelled
from protocol.messages import PROTOCOL_VERSION, Completion, CoreStatus
from protocol.wire import (
    Cancel,
    ClientMessage,
    Complete,
    Completed,
    CoreMessage,
    Failed,
    Forget,
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

LONG_PREFILL_S = 1.0
"""Seconds after which a client is told how far the prefill of a session's prompt is."""

TELL_EVERY_S = 0.2


class WebSocketApi:
    """Serves every connection with one scheduler."""

    def __init__(
        self, scheduler: Scheduler, presence: Presence, connections: Connections, retirement: Retirement
    ) -> None:
        self._scheduler = scheduler
        self._presence = presence
        self._connections = connections
        self._retirement = retirement
        self._numbers = itertools.count(1)

    async def serve(self, websocket: WebSocket) -> None:
        """Handle a connection until it ends; sends the client the core's status now and at every change."""
        address = websocket.scope["client"]
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None)
        outbox = Outbox(websocket, partial(self._connections.abort, address))
        name = f"ws-{next(self._numbers)}"
        connection = Connection(outbox.send, self._scheduler, self._presence, self._retirement, name)
        sending = asyncio.create_task(outbox.run())
        try:
            while (message := await websocket.receive())["type"] != "websocket.disconnect":
                connection.receive(_content(message))
        finally:
            connection.disconnected()
            sending.cancel()


@dataclass(slots=True)
class _Prefill:
    """The prefill of a session's prompt, over all requests that took part; seconds by time.monotonic()."""

    due: float  # when to tell the client next
    went_on: float  # after its last forward


class Connection:
    """One client. Its unanswered requests are cancelled when it disconnects."""

    def __init__(
        self,
        send: Callable[[str], None],
        scheduler: Scheduler,
        presence: Presence,
        retirement: Retirement,
        name: str,
    ) -> None:
        """`send` is called from any thread, and must not block."""
        self._send_text = send
        self._scheduler = scheduler
        self._retirement = retirement
        self._clients = presence
        self._name = name
        self._lock = threading.RLock()  # a submission may answer an older request
        self._jobs: dict[int, int] = {}  # the client's id -> the scheduler's; guarded by the lock
        self._prefills: dict[str, _Prefill] = {}  # by session; guarded, too
        self._presence = ExitStack()
        self._presence.enter_context(presence.listen(lambda _: self._announce()))
        self._announce()

    def receive(self, message: str | bytes) -> None:
        """Execute the client's message; answer an unreadable one with the reason."""
        try:
            self._handle(_decode(message))
        except BadInput as error:
            self._send(Failed(read_envelope(message).id, error.code, str(error)))

    def disconnected(self) -> None:
        """Cancel the client's unanswered requests."""
        self._presence.close()
        self._retirement.withdraw(self._name)
        with self._lock:
            for job_id in tuple(self._jobs.values()):
                self._scheduler.cancel(job_id)

    def _handle(self, message: ClientMessage) -> None:
        if isinstance(message, Complete):
            self._submit(message)
        elif isinstance(message, Cancel):
            with self._lock:
                job_id = self._jobs.get(message.id)
            if job_id is not None:  # else the answer is already being sent
                self._scheduler.cancel(job_id)
        elif isinstance(message, Forget):
            self._scheduler.forget(message.session, self._name)
        elif isinstance(message, Release):
            self._scheduler.release(message.session)
            with self._lock:
                self._prefills.pop(message.session, None)
        elif isinstance(message, Unload):
            self._scheduler.unload()
        elif isinstance(message, Stop):
            self._stop(message)

    def _stop(self, message: Stop) -> None:
        reason = self._retirement.ask(self._name, message.how)
        if reason:
            self._send(Kept(reason))
        elif self._retirement.stopped:
            self._clients.announce(self._scheduler.status)  # every connection reports that the core stops

    def _submit(self, message: Complete) -> None:
        with self._lock:
            if message.id in self._jobs:
                self._send(Failed(message.id, BadInput.code, f"request {message.id} is still running"))
                return
            session = message.request.session
            try:
                self._jobs[message.id] = self._scheduler.submit(
                    message.request,
                    lambda answer: self._answer(message.id, session, answer),
                    self._name,
                    on_prefill=lambda tokens, of: self._tell_prefill(message.id, session, tokens, of),
                )
            except (Busy, Cancelled) as error:
                self._send(Failed(message.id, error.code, str(error)))

    def _tell_prefill(self, client_id: int, session: str, tokens: int, of: int) -> None:
        """Send how far a prefill is, at intervals, if it takes long; called on the model thread.

        A request that supersedes another one continues its prefill, so the time counts from the first of them.
        """
        now = time.monotonic()
        with self._lock:
            prefill = self._prefills.get(session)
            if prefill is None or now - prefill.went_on > LONG_PREFILL_S:
                prefill = self._prefills[session] = _Prefill(now + LONG_PREFILL_S, now)
            prefill.went_on = now
            if now >= prefill.due and client_id in self._jobs:
                prefill.due = now + TELL_EVERY_S
                self._send(Prefilled(client_id, tokens, of))

    def _answer(self, client_id: int, session: str, answer: Outcome) -> None:
        """Send the answer; usually called on the model thread."""
        with self._lock:
            del self._jobs[client_id]
            if not isinstance(answer, Cancelled):
                self._prefills.pop(session, None)
        if isinstance(answer, Completion):
            self._send(Completed(client_id, answer))
        else:
            self._send(Failed(client_id, answer.code, str(answer)))

    def _announce(self) -> None:
        with self._lock:  # the lock orders the messages: the last one sent is the current status
            status = self._scheduler.status
            if self._retirement.stopped:
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

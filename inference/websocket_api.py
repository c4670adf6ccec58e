"""One WebSocket connection: the messages of `protocol.wire`, to and from the scheduler."""

from __future__ import annotations

import asyncio
import itertools
import logging

from starlette.websockets import WebSocket, WebSocketDisconnect

from inference.job_queue import Answer
from inference.presence import Presence
from inference.scheduler import Scheduler
from protocol.errors import BadInput, Cancelled
from protocol.messages import PROTOCOL_VERSION, Completion, CoreStatus
from protocol.wire import (
    Cancel,
    ClientMessage,
    Complete,
    Completed,
    CoreMessage,
    Failed,
    Forget,
    StatusChanged,
    decode_client,
    encode,
)

log = logging.getLogger(__name__)


class Connection:
    """Lives in one event loop; answers come from the model's thread and are queued for sending here."""

    def __init__(self, websocket: WebSocket, scheduler: Scheduler, name: str) -> None:
        self._websocket = websocket
        self._scheduler = scheduler
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._outgoing: asyncio.Queue[CoreMessage] = asyncio.Queue()
        self._jobs: dict[int, int] = {}  # the client's id -> the scheduler's

    async def serve(self) -> None:
        """Handle messages until the client goes; what it still waits for is then cancelled."""
        await self._websocket.accept()
        sender = asyncio.create_task(self._send_all())
        try:
            while (frame := await self._websocket.receive())["type"] != "websocket.disconnect":
                self._handle(frame.get("text"))
        finally:
            for job_id in self._jobs.values():
                self._scheduler.cancel(job_id)
            sender.cancel()

    def announce(self, status: CoreStatus) -> None:
        """Send a change of status; from any thread."""
        self._post(StatusChanged(status, PROTOCOL_VERSION))

    def _handle(self, text: str | None) -> None:
        try:
            message = _decode_frame(text)
        except BadInput as error:
            self._outgoing.put_nowait(Failed(None, error.code, str(error)))
            return
        if isinstance(message, Complete):
            self._submit(message)
        elif isinstance(message, Cancel):
            job_id = self._jobs.get(message.id)
            if job_id is not None:  # else the answer is on its way already
                self._scheduler.cancel(job_id)
        elif isinstance(message, Forget):
            self._scheduler.forget(message.session, self._name)

    def _submit(self, message: Complete) -> None:
        if message.id in self._jobs:
            self._outgoing.put_nowait(Failed(message.id, BadInput.code, f"request {message.id} is still running"))
            return
        try:
            self._jobs[message.id] = self._scheduler.submit(
                message.request, lambda answer: self._answer_from_any_thread(message.id, answer), self._name
            )
        except Cancelled as error:
            self._outgoing.put_nowait(Failed(message.id, error.code, str(error)))

    def _answer_from_any_thread(self, client_id: int, answer: Answer) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answer, client_id, answer)

    def _answer(self, client_id: int, answer: Answer) -> None:
        self._jobs.pop(client_id, None)
        if isinstance(answer, Completion):
            self._outgoing.put_nowait(Completed(client_id, answer))
        else:
            self._outgoing.put_nowait(Failed(client_id, answer.code, str(answer)))

    def _post(self, message: CoreMessage) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._outgoing.put_nowait, message)

    async def _send_all(self) -> None:
        try:
            while True:
                await self._websocket.send_text(encode(await self._outgoing.get()))
        except WebSocketDisconnect:
            log.info("client %s went away while being answered", self._name)


def _decode_frame(text: str | None) -> ClientMessage:
    if text is None:
        raise BadInput("a binary frame: messages are JSON text")
    return decode_client(text)


class WebSocketApi:
    """The endpoint `/ws`."""

    def __init__(self, scheduler: Scheduler, presence: Presence) -> None:
        self._scheduler = scheduler
        self._presence = presence
        self._numbers = itertools.count(1)

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one connection until it ends."""
        connection = Connection(websocket, self._scheduler, f"ws-{next(self._numbers)}")
        with self._presence.listen(connection.announce):
            connection.announce(self._scheduler.status)
            await connection.serve()

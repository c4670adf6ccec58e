"""A core without a model: it speaks the wire protocol, and answers as a test tells it to.

Run as a program it takes the options of `midfill core` that it needs, and publishes its address as the core does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec.structs import replace
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from protocol.errors import AlreadyServed, MidfillError
from protocol.messages import PROTOCOL_VERSION, Completion, CompletionRequest, CoreMemory, CoreStatus, TierMemory, Usage
from protocol.rendezvous import CoreAddress, address_file, hold, read_or_make_token, runtime_folder, write_address
from protocol.tokens import PROOF_PATH, proof
from protocol.wire import (
    Cancel,
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
)

READY = CoreStatus("ready", "fake", "cpu", context_tokens=4096, chars_per_token=3.0)

Answer = Callable[[CompletionRequest], Awaitable[str]]


def completion(text: str, prompt_tokens: int = 100, recomputed_tokens: int = 1) -> Completion:
    generated = len(text)
    return Completion(text, "stop", Usage(prompt_tokens, recomputed_tokens, generated, generated + 1, 0.0, 1.0, 2.0))


def says(text: str) -> Answer:
    async def answer(_: CompletionRequest) -> str:
        return text

    return answer


def fails(error: Exception) -> Answer:
    async def fail(_: CompletionRequest) -> str:
        raise error

    return fail


async def never(_: CompletionRequest) -> str:
    return await asyncio.Future[str]()


@asynccontextmanager
async def listening(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], **options: Any
) -> AsyncIterator[str]:
    """The address of a server whose connections are handled so."""
    async with await asyncio.start_server(handle, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *messages: CoreMessage) -> None:
    """Open a WebSocket as a server does, send these messages in the same packet, and read nothing more."""
    protocol = ServerProtocol()
    while not (events := protocol.events_received()):
        protocol.receive_data(await reader.read(4096))
    assert isinstance(events[0], Request)
    protocol.send_response(protocol.accept(events[0]))
    for message in messages:
        protocol.send_text(encode(message).encode())
    writer.write(b"".join(protocol.data_to_send()))


class FakeCore:
    """Keeps what it was asked; `answer` may be replaced at any time, and may raise a MidfillError."""

    def __init__(self, token: str = "secret") -> None:
        self.token = token
        self.answer = says("x = 1")
        self.status = READY
        self.requests: list[CompletionRequest] = []
        self.cancelled: list[int] = []
        self.forgotten: list[str] = []
        self.released: list[str] = []
        self.unloads = 0
        self.frees: list[bool] = []  # whether on disk too
        self.memory = CoreMemory(300_000_000, 20_000_000, 2, 80_000_000, (TierMemory("device", 8_000_000, 10**9, 900),))
        self.last_id = 0
        self.stops: list[str] = []
        self.authorizations: list[str | None] = []  # shown in requests for a WebSocket
        self.kept = ""  # why it does not exit where it is asked to; else it drops its connections
        self.ended = asyncio.Event()
        self.protocol_version = PROTOCOL_VERSION
        self.connections: set[ServerConnection] = set()
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def asked(self) -> list[CompletionRequest]:
        """The requests for suggestions, without prefetches."""
        return [request for request in self.requests if request.max_tokens]

    def hold(self, text: str = "x = 1") -> asyncio.Event:
        """Answer with this text, but only after the event."""
        release = asyncio.Event()

        async def answer(_: CompletionRequest) -> str:
            await release.wait()
            return text

        self.answer = answer
        return release

    async def set_status(self, status: CoreStatus) -> None:
        self.status = status
        for connection in self.connections:
            await self._send(connection, StatusChanged(status, self.protocol_version))

    async def report_prefill(self, tokens: int, of: int) -> None:
        """Say of the last request how far its prefill is."""
        for connection in self.connections:
            await self._send(connection, Prefilled(self.last_id, tokens, of))

    async def drop_connections(self) -> None:
        for connection in list(self.connections):
            await connection.close()

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[Server]:
        async with serve(self._serve, "127.0.0.1", port, process_request=self._check_token, close_timeout=1) as server:
            bound = next(iter(server.sockets)).getsockname()[1]
            self.url = f"ws://127.0.0.1:{bound}/ws"
            yield server

    def _check_token(self, connection: ServerConnection, request: Request) -> Response | None:
        url = urlsplit(request.path)
        if url.path == PROOF_PATH:
            (nonce,) = parse_qs(url.query)["nonce"]
            return connection.respond(HTTPStatus.OK, proof(self.token, nonce, connection.local_address[1]))
        self.authorizations.append(request.headers.get("Authorization"))
        if request.headers.get("Authorization") == f"Bearer {self.token}":
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "wrong token\n")

    async def _serve(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        try:
            await self._send(connection, StatusChanged(self.status, self.protocol_version))
            async for text in connection:
                assert isinstance(text, str)
                self._receive(connection, text)
        except ConnectionClosed:
            pass  # as a test wanted it
        finally:
            self.connections.discard(connection)

    def _receive(self, connection: ServerConnection, text: str) -> None:
        message = decode_client(text)
        if isinstance(message, Complete):
            self.requests.append(message.request)
            self.last_id = message.id
            self._begin(self._complete(connection, message))
        elif isinstance(message, Cancel):
            self.cancelled.append(message.id)
        elif isinstance(message, Forget):
            self.forgotten.append(message.session)
        elif isinstance(message, Release):
            self.released.append(message.session)
        elif isinstance(message, Unload):
            self.unloads += 1
            self._begin(self.set_status(replace(self.status, state="unloaded")))
        elif isinstance(message, Describe | Free):
            if isinstance(message, Free):
                self.frees.append(message.disk)
                self.memory = CoreMemory(200_000_000, 20_000_000, 1, 40_000_000)
            self._begin(self._send(connection, Described(message.id, self.memory)))
        elif isinstance(message, Stop):
            self.stops.append(message.how)
            self._begin(self._end(connection))

    async def _end(self, connection: ServerConnection) -> None:
        if self.kept:
            await self._send(connection, Kept(self.kept))
            return
        if self.stops[-1] == "stop":
            await self.set_status(CoreStatus("stopped", "fake"))
        self.ended.set()
        await self.drop_connections()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _complete(self, connection: ServerConnection, message: Complete) -> None:
        try:
            text = await self.answer(message.request) if message.request.max_tokens else ""
            await self._send(connection, Completed(message.id, completion(text)))
        except MidfillError as error:
            await self._send(connection, Failed(message.id, error.code, str(error)))

    async def _send(self, connection: ServerConnection, message: CoreMessage) -> None:
        await connection.send(encode(message))


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--leave", action="store_true", help="end at once, as where another core serves the model")
    parser.add_argument("--starts", type=Path, help="append a line to this file at every start")
    parser.add_argument("--die-after", type=float, default=60.0, help="seconds")
    parser.add_argument("--protocol", type=int, default=PROTOCOL_VERSION)
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--store-mb", type=int, default=0)
    options, _ = parser.parse_known_args()
    if options.starts:
        with options.starts.open("a") as file:
            file.write(f"{os.getpid()}\n")
    folder = runtime_folder()
    published = address_file(folder, options.model)
    with hold(published) as held:
        if options.leave or not held:
            sys.exit(AlreadyServed.exit_status)
        published.unlink(missing_ok=True)
        core = FakeCore(read_or_make_token(folder))
        async with core.listening():
            settings = {"store_mb": options.store_mb}
            address = CoreAddress(
                core.url, os.getpid(), options.model, settings, options.protocol, replaceable=not options.by_hand
            )
            write_address(published, address)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(core.ended.wait(), options.die_after)
        published.unlink()


if __name__ == "__main__":
    asyncio.run(_main())

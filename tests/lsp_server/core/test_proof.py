"""The token goes to a core that has proved that it knows it, and to no other listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lsp_server.core import proof as core_proof
from lsp_server.core.client import CoreClient, Endpoint
from lsp_server.core.proof import check_proof
from protocol.errors import CoreSilent, CoreUnavailable, Unauthorized
from tests.lsp_server.fake_core import FakeCore

TOKEN = "a-token-that-is-secret"


class Listener:
    """Answers every connection with the same bytes, and keeps what it was sent."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heard = b""
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(4096):
            self.heard += chunk
            writer.write(self.answer)
        writer.close()


async def test_a_core_that_knows_the_token_is_connected_to(core: FakeCore) -> None:
    client = await CoreClient.open(Endpoint(core.url, core.token, own=True), lambda _: None)
    await client.close()
    assert core.authorizations == [f"Bearer {core.token}"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake", Unauthorized),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"f" * 10_000, Unauthorized),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", Unauthorized),
        (b"SSH-2.0-OpenSSH_9.6\r\n", CoreUnavailable),
    ],
)
async def test_a_listener_that_is_no_core_never_gets_the_token(answer: bytes, error: type[Exception]) -> None:
    async with Listener(answer).listening() as listener:
        with pytest.raises(error):
            await CoreClient.open(Endpoint(listener.url, TOKEN, own=True), lambda _: None)
    assert b"GET /proof" in listener.heard
    assert TOKEN.encode() not in listener.heard


async def test_the_answer_of_a_core_at_another_port_is_no_proof(core: FakeCore) -> None:
    """A listener that passes the question on to the real core learns nothing that helps it."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(core.url.rpartition(":")[2].removesuffix("/ws"))
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        there_writer.write(await reader.read(4096))
        writer.write(await there_reader.read(4096))
        there_writer.close()
        writer.close()

    async with await asyncio.start_server(pass_on, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        with pytest.raises(Unauthorized, match="does not know this machine's token"):
            await CoreClient.open(Endpoint(url, core.token, own=True), lambda _: None)
    assert core.authorizations == []


async def test_a_listener_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_proof, "_TIMEOUT_S", 0.1)
    async with Listener(b"").listening() as listener:
        with pytest.raises(CoreSilent, match="does not answer"):
            await check_proof(listener.url, TOKEN)


async def test_nothing_listens() -> None:
    with pytest.raises(CoreUnavailable, match="no core answers"):
        await check_proof("ws://127.0.0.1:9/ws", TOKEN)

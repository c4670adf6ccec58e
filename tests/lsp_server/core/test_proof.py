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
from tests.lsp_server.fake_core import FakeCore, listening

TOKEN = "a-token-that-is-secret"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[str, bytearray]]:
    """The address of a server that answers every packet with the same bytes, and all that it was sent."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(4096):
            heard.extend(chunk)
            writer.write(answer)
        writer.close()

    async with listening(serve) as url:
        yield url, heard


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
    async with answering(answer) as (url, heard):
        with pytest.raises(error):
            await CoreClient.open(Endpoint(url, TOKEN, own=True), lambda _: None)
    assert b"GET /proof" in heard
    assert TOKEN.encode() not in heard


async def test_the_answer_of_a_core_at_another_port_is_no_proof(core: FakeCore) -> None:
    """A listener that passes the question on to the real core learns nothing that helps it."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(core.url.rpartition(":")[2].removesuffix("/ws"))
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        there_writer.write(await reader.read(4096))
        writer.write(await there_reader.read(4096))
        there_writer.close()
        writer.close()

    async with listening(pass_on) as url:
        with pytest.raises(Unauthorized, match="does not know this machine's token"):
            await CoreClient.open(Endpoint(url, core.token, own=True), lambda _: None)
    assert core.authorizations == []


async def test_a_listener_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_proof, "_TIMEOUT_S", 0.1)
    async with answering(b"") as (url, _):
        with pytest.raises(CoreSilent, match="does not answer"):
            await check_proof(url, TOKEN)


async def test_nothing_listens() -> None:
    with pytest.raises(CoreUnavailable, match="no core answers"):
        await check_proof("ws://127.0.0.1:9/ws", TOKEN)

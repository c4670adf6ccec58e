"""The WebSocket to a core: messages as they arrive, kept until somebody listens, and the end of it told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosedError

from lsp_server.core.connection import CoreConnection
from tests.lsp_server.editor import PATIENCE_S, until


@pytest.fixture
def said() -> list[str]:
    """What the server has heard."""
    return []


@pytest.fixture
async def server(said: list[str]) -> AsyncIterator[Server]:
    async def hear(connection: ServerConnection) -> None:
        async for text in connection:
            assert isinstance(text, str)
            said.append(text)

    async with serve(hear, "127.0.0.1", 0) as server:
        yield server


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[CoreConnection]:
    port = next(iter(server.sockets)).getsockname()[1]
    async with connect(f"ws://127.0.0.1:{port}/", create_connection=CoreConnection) as connection:
        assert isinstance(connection, CoreConnection)
        yield connection


def _other_end(server: Server) -> ServerConnection:
    (other_end,) = server.connections
    return other_end


async def test_what_nobody_listens_to_is_kept(server: Server, connection: CoreConnection) -> None:
    await _other_end(server).send("a")
    await _other_end(server).send(["b", "c"])
    await asyncio.sleep(0.05)
    heard: list[str] = []
    connection.listen(heard.append)
    assert heard == ["a", "bc"]
    await _other_end(server).send("d")
    await until(lambda: heard == ["a", "bc", "d"])


async def test_no_message_is_too_many(server: Server, connection: CoreConnection) -> None:
    """websockets would stop reading after 16 messages that wait, and with them the pings would."""
    for number in range(100):
        await _other_end(server).send(str(number))
    await (await _other_end(server).ping())
    heard: list[str] = []
    connection.listen(heard.append)
    assert heard == [str(number) for number in range(100)]


async def test_messages_leave_in_order_without_a_wait(connection: CoreConnection, said: list[str]) -> None:
    for number in range(100):
        connection.write(f"{number} " + "x" * 10_000)
    await until(lambda: len(said) == 100)
    assert [text.split()[0] for text in said] == [str(number) for number in range(100)]


async def test_no_text_at_all(server: Server, connection: CoreConnection) -> None:
    heard: list[str] = []
    connection.listen(heard.append)
    await _other_end(server).send(b"\xff\xfe", text=True)
    await _other_end(server).send("after")
    await until(lambda: heard == ["��", "after"])


async def test_the_end_is_told_once_and_nothing_is_sent_after_it(
    server: Server, connection: CoreConnection, said: list[str]
) -> None:
    ends: list[int | None] = []
    connection.on_lost(lambda: ends.append(connection.close_code))
    await _other_end(server).close(4000)
    await until(lambda: ends == [4000])
    connection.write("nobody hears this")
    await connection.close()
    await asyncio.sleep(0.05)
    assert (ends, said) == ([4000], [])


async def test_pings_are_answered(connection: CoreConnection) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await (await connection.ping())


async def test_ends_where_the_other_end_does_not_read(deaf_url: str) -> None:
    connection = await connect(deaf_url, create_connection=CoreConnection)
    assert isinstance(connection, CoreConnection)
    ended = asyncio.Event()
    connection.on_lost(ended.set)
    for _ in range(1000):
        connection.write("x" * 100_000)
        await asyncio.sleep(0)
        if ended.is_set():
            break
    assert ended.is_set()
    with pytest.raises(ConnectionClosedError) as raised:
        await connection.send("more")
    assert "bytes unread" in str(raised.value.__cause__)

"""A client's bytes as they may arrive: every message handled, in order, each handler begun before the next one."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.editor_stream import _BACKLOG_BYTES, EditorStream


class Protocol:
    """Notes the bodies that it receives, and begins a task for each, as the handler of a request is one.

    One in capitals is handled at once, as that of a change is.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.noted: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(self, body: bytes) -> bool:
        name = body.decode()
        self.noted.append(name)
        if name.isupper():
            self.noted.append(f"{name} begins")
            return True
        if name == "exit":
            self.stopped = True
        elif name == "bug":
            raise ZeroDivisionError
        task = asyncio.get_running_loop().create_task(self._begin(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.remove)
        return False

    async def _begin(self, name: str) -> None:
        self.noted.append(f"{name} begins")


class Server:
    def __init__(self) -> None:
        self.protocol = Protocol()
        self.errors: list[str] = []

    def report_server_error(self, error: Exception, _source: type[Exception]) -> None:
        self.errors.append(type(error).__name__)


class Transport(asyncio.ReadTransport):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


def stream_of(server: Any) -> EditorStream:
    return EditorStream(server)


def framed(*bodies: str) -> bytes:
    return b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body.encode()) for body in bodies)


@given(st.lists(st.text("abcABC", min_size=1, max_size=3), max_size=4), st.data())
def test_each_handler_begins_before_the_next_message_is_handled(names: list[str], data: st.DataObject) -> None:
    async def arrive() -> list[str]:
        server = Server()
        stream = stream_of(server)
        raw = framed(*names)
        while raw:
            count = data.draw(st.integers(1, len(raw)) | st.just(len(framed(names[0]))))
            stream.data_received(raw[:count])
            raw = raw[count:]
            if data.draw(st.booleans()):
                await asyncio.sleep(0)  # the pieces come together, or one after the other
        stream.eof_received()
        await stream.ended
        await asyncio.sleep(0)
        return server.protocol.noted

    assert asyncio.run(arrive()) == [noted for name in names for noted in (name, f"{name} begins")]


async def test_what_follows_a_message_that_is_handled_is_handled_in_the_same_turn() -> None:
    server = Server()
    stream_of(server).data_received(framed("A", "B", "c", "d"))
    assert server.protocol.noted == ["A", "A begins", "B", "B begins", "c"]


async def test_what_came_before_the_end_is_handled_before_it_ends() -> None:
    server = Server()
    stream = stream_of(server)
    stream.data_received(framed("a", "b", "c") + b"Content-Le")
    stream.connection_lost(None)
    assert not stream.ended.done()
    await stream.ended
    assert [name for name in server.protocol.noted if "begins" not in name] == ["a", "b", "c"]


async def test_nothing_is_handled_behind_the_end() -> None:
    server = Server()
    stream = stream_of(server)
    stream.data_received(framed("a", "exit", "b"))
    await stream.ended
    stream.data_received(framed("c"))
    await asyncio.sleep(0.01)
    assert [name for name in server.protocol.noted if "begins" not in name] == ["a", "exit"]
    assert server.errors == []


async def test_errors_are_reported_and_the_next_message_handled() -> None:
    server = Server()
    stream = stream_of(server)
    stream.data_received(framed("bug") + b"nonsense\r\n\r\n" + framed("a"))
    await asyncio.sleep(0.01)
    assert server.errors == ["ZeroDivisionError", "JsonRpcParseError"]
    assert server.protocol.noted == ["bug", "a", "a begins"]


async def test_reads_no_more_than_it_can_handle() -> None:
    server, transport = Server(), Transport()
    stream = stream_of(server)
    stream.connection_made(transport)
    long = "x" * (_BACKLOG_BYTES // 2)
    for _ in range(4):
        stream.data_received(framed(long))
    assert transport.calls == ["pause"]
    await asyncio.sleep(0.05)
    assert transport.calls == ["pause", "resume"]
    assert server.protocol.noted.count(long) == 4


async def test_a_message_longer_than_the_backlog_is_read_to_its_end() -> None:
    server, transport = Server(), Transport()
    stream = stream_of(server)
    stream.connection_made(transport)
    raw = framed("x" * (3 * _BACKLOG_BYTES))
    for start in range(0, len(raw), _BACKLOG_BYTES):
        stream.data_received(raw[start : start + _BACKLOG_BYTES])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert len(server.protocol.noted) == 2
    assert transport.calls.count("pause") == transport.calls.count("resume")


async def test_a_connection_that_breaks_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lsp_server")
    stream = stream_of(Server())
    stream.connection_lost(ConnectionResetError("reset by peer"))
    await stream.ended
    assert "reset by peer" in caplog.text

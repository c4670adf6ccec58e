"""A client's bytes as they may arrive: in pieces, broken, or not LSP at all.

Language servers as processes: stdio belongs to LSP, no torch is imported, and leaving loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcRequestCancelled

from lsp_server.launch import read_message
from lsp_server.usage.statistics import read_statistics, statistics_file, total
from protocol.errors import BadInput
from tests.lsp_server.editor import PATIENCE_S, URI, Editor, editor_on, inline_params, until
from tests.lsp_server.fake_core import FakeCore, never


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def messages_in(raw: bytes) -> list[bytes]:
    """The bodies in a stream."""
    stream = asyncio.StreamReader()
    stream.feed_data(raw)
    stream.feed_eof()
    bodies = []
    while body := await read_message(stream):
        bodies.append(body)
    return bodies


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length:2\r\n\r\n",
        b"CONTENT-LENGTH: 2 \r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n",
        b"Content-Length: 2\n\n",
        b"Content-Length: 2\r\n \r\n",
    ],
)
async def test_headers_as_clients_write_them(headers: bytes) -> None:
    assert await messages_in(headers + b"{}" + headers + b"[]") == [b"{}", b"[]"]


@pytest.mark.parametrize(
    "headers",
    [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\r\n",
        b"Content-Length: abc\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"x" * 100_000 + b"\r\n",
    ],
)
async def test_headers_without_a_length_end_the_stream(headers: bytes) -> None:
    with pytest.raises(BadInput) as refused:
        await messages_in(headers + framed(b"{}"))
    assert len(str(refused.value)) < 300


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=5), st.integers(0, 10))
def test_every_message_that_has_come_whole_is_read(sent: list[bytes], missing: int) -> None:
    raw = b"".join(map(framed, sent))
    read = asyncio.run(messages_in(raw[: len(raw) - missing]))
    assert read == sent[: len(read)]
    assert len(read) >= len(sent) - missing


def change_of(uri: str, text: str) -> bytes:
    params = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": text}]}
    return json.dumps({"jsonrpc": "2.0", "method": types.TEXT_DOCUMENT_DID_CHANGE, "params": params}).encode()


@pytest.mark.parametrize("lost", [change_of(URI, "X").replace(b"X", b"\xff"), change_of(URI, "X")[:-9]])
async def test_a_change_that_is_not_json_is_a_lost_step(editor: Editor, caplog: pytest.LogCaptureFixture, lost: bytes) -> None:
    caplog.set_level(logging.WARNING, "lsp_server")
    editor.open("a\n")
    editor.open("b\n", uri="file:///project/other.py")
    editor.send(lost)
    await until(lambda: editor.resyncs)
    assert [resync.textDocument.uri for resync in editor.resyncs] == [URI]
    assert "not JSON" in editor.resyncs[0].reason
    assert "not JSON" in caplog.text
    assert await editor.suggest(0, 1) == []
    assert await editor.suggest(0, 1, uri="file:///project/other.py")
    editor.replace_all(3, "ab\n")
    assert await editor.suggest(0, 1)


async def test_a_lost_change_of_an_unknown_document_may_be_of_any(editor: Editor) -> None:
    uris = [URI, "file:///project/other.py"]
    for uri in uris:
        editor.open("a\n", uri=uri)
    editor.send(change_of(URI, "x").replace(URI.encode(), b"\xff"))
    await until(lambda: len(editor.resyncs) == 2)
    assert [resync.textDocument.uri for resync in editor.resyncs] == uris


async def test_a_request_that_is_not_utf8_is_answered(editor: Editor) -> None:
    editor.protocol._request_futures["r"] = future = asyncio.Future()  # type: ignore[assignment]
    editor.send(b'{"jsonrpc": "2.0", "id": "r", "method": "midfill/documentHash", "params": "\xff"}')
    with pytest.raises(Exception, match="not JSON"):
        await asyncio.wait_for(future, PATIENCE_S)


async def test_an_opened_document_that_cannot_be_read_can_be_opened_again(core: FakeCore) -> None:
    async with editor_on(core) as editor:
        item = {"uri": URI, "languageId": "python", "version": 1, "text": "X"}
        opening = {"jsonrpc": "2.0", "method": types.TEXT_DOCUMENT_DID_OPEN, "params": {"textDocument": item}}
        editor.send(json.dumps(opening).encode().replace(b"X", b"\xff"))
        editor.change(2, (0, 0), (0, 0), "y")
        await until(lambda: editor.resyncs)
        assert "is not open" in editor.resyncs[0].reason
        editor.open("a")
        assert await editor.suggest(0, 1)


LSP = (sys.executable, "-X", "importtime", "-m", "midfill", "lsp")


class StdioEditor(Editor):
    """The editor of a language server in a process of its own."""

    process: asyncio.subprocess.Process
    log: asyncio.Task[bytes]

    async def logged(self) -> list[str]:
        """The lines of the ended server's log, without the times of its imports."""
        lines = (await self.log).decode().splitlines()
        return [line for line in lines if not line.startswith("import time:")]


@asynccontextmanager
async def stdio_editor(core: FakeCore, **environment: str) -> AsyncIterator[StdioEditor]:
    """An editor whose initialized server is told of the core by variables."""
    editor = StdioEditor()
    address = {"MIDFILL_CORE": core.url, "MIDFILL_CORE_TOKEN": core.token}
    await editor.start_io(*LSP, env={**os.environ, **address, **environment})
    editor.process, editor.log = editor._server, asyncio.create_task(editor._server.stderr.read())
    try:
        await editor.start({})
        yield editor
    finally:
        await editor.stop()


async def test_over_stdio_without_a_model_library(core: FakeCore) -> None:
    async with stdio_editor(core) as editor:
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggested_text(0, 1) == "x = 1"
        await editor.shutdown_async(None)
        editor.exit(None)
        assert await editor.process.wait() == 0
        imported = {line.rpartition("|")[2].strip() for line in (await editor.log).decode().splitlines()}
        assert "pygls.lsp.server" in imported
        assert not imported & {"torch", "transformers", "tokenizers", "numpy"}


async def test_a_clients_mistake_is_one_line_of_the_log(core: FakeCore) -> None:
    async with stdio_editor(core) as editor:
        with pytest.raises(JsonRpcInvalidParams):
            await editor.ask_in_json(types.TEXT_DOCUMENT_INLINE_COMPLETION, {"position": "nowhere"})
        await editor.shutdown_async(None)
        editor.exit(None)
        (line,) = await editor.logged()
        assert '{"position": "nowhere"}' in line


async def test_a_shutdown_ends_what_is_under_way(core: FakeCore) -> None:
    core.answer = never
    async with stdio_editor(core) as editor:
        await editor.until_state("ready")
        editor.open("a")
        under_way = asyncio.create_task(editor.suggest(0, 1))
        await until(lambda: core.asked)
        await editor.shutdown_async(None)
        with pytest.raises(JsonRpcRequestCancelled):
            await under_way
        editor.exit(None)
        assert await editor.process.wait() == 0


async def test_a_client_that_kills_the_server_once_it_is_shut_down(core: FakeCore, tmp_path: Path) -> None:
    async with stdio_editor(core, XDG_STATE_HOME=str(tmp_path)) as editor:
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggest(0, 1)
        await editor.shutdown_async(None)
        editor.process.kill()
        await editor.process.wait()
    (saved,) = tmp_path.rglob("statistics.sqlite")
    assert total(read_statistics(saved).values()).shown == 1


async def test_who_leaves_lets_go_of_the_core(core: FakeCore) -> None:
    """Also where its statistics cannot be saved."""
    statistics_file().parent.mkdir(parents=True, exist_ok=True)
    statistics_file().write_bytes(b"\xff\xfe")
    try:
        async with editor_on(core) as editor:
            editor.open("a")
            assert await editor.suggest(0, 1)
            assert len(core.connections) == 1
        await until(lambda: not core.connections)
    finally:
        statistics_file().unlink()


@pytest.mark.parametrize("shuts_down", [True, False])
async def test_a_client_that_leaves_without_waiting(core: FakeCore, tmp_path: Path, *, shuts_down: bool) -> None:
    """Some clients send `exit` before the answer to `shutdown`, and some die: nothing is lost, and nothing logged."""
    async with stdio_editor(core, XDG_STATE_HOME=str(tmp_path)) as editor:
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggest(0, 1)
        if shuts_down:
            answered = asyncio.create_task(editor.shutdown_async(None))
            await asyncio.sleep(0)  # it is sent
            editor.exit(None)
            await answered
        else:
            editor.process.stdin.close()
        assert await editor.process.wait() == (0 if shuts_down else 1)
        assert await editor.logged() == []
        await until(lambda: not core.connections)
    (saved,) = tmp_path.rglob("statistics.sqlite")
    assert total(read_statistics(saved).values()).shown == 1


async def test_a_bad_variable_is_named_before_anything_starts() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "midfill", "lsp"),
        env={**os.environ, "MIDFILL_MAX_TOKENS": "many"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 2
    assert stdout == b""
    assert "MIDFILL_MAX_TOKENS = 'many': expected whole number" in stderr.decode()


async def test_requests_see_the_document_as_it_was_when_they_were_sent(editor: Editor, core: FakeCore) -> None:
    """Messages that arrive together are handled one after the other, each handler begun."""
    editor.open("a")
    first = editor.protocol.send_request_async(types.TEXT_DOCUMENT_INLINE_COMPLETION, inline_params(0, 1))
    editor.change(2, (0, 0), (0, 1), "")
    assert not (await first).items

"""A client's bytes as they may arrive: in pieces, broken, or not LSP at all."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from lsp_server.editor_connection import read_message
from protocol.errors import BadInput
from tests.lsp_server.editor import PATIENCE_S, URI, Editor, editor_on, until
from tests.lsp_server.fake_core import FakeCore


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
async def test_a_change_that_is_not_json_is_a_lost_step(
    editor: Editor, caplog: pytest.LogCaptureFixture, lost: bytes
) -> None:
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

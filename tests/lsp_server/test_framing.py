"""Messages on a stream: their headers as clients write them, and streams that cannot be followed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygls.exceptions import JsonRpcInvalidRequest, JsonRpcParseError

from lsp_server.framing import parse, read_body


def stream(raw: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(raw)
    reader.feed_eof()
    return reader


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length:2\r\n\r\n",
        b"CONTENT-LENGTH: 2 \r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n",
        b"X: y\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length: 2\n\n",
    ],
)
async def test_headers_as_clients_write_them(headers: bytes) -> None:
    reader = stream(headers + b"{}" + headers + b"[]")
    assert [await read_body(reader), await read_body(reader), await read_body(reader)] == [b"{}", b"[]", None]


@pytest.mark.parametrize("headers", [b"Hello: there", b"Content-Length: abc", b"Content-Length: -1", b"x" * 100_000])
async def test_headers_without_a_length_are_passed_over(headers: bytes) -> None:
    reader = stream(headers + b"\r\n\r\nContent-Length: 2\r\n\r\n{}")
    with pytest.raises(JsonRpcParseError) as refused:
        await read_body(reader)
    assert len(str(refused.value)) < 300
    body = None
    while body is None:
        with contextlib.suppress(JsonRpcParseError):  # over what is left of a header without an end
            body = await read_body(reader)
    assert body == b"{}"


@pytest.mark.parametrize("raw", [b"", b"Content-Length: 2\r\n", b"Content-Le"])
async def test_the_end_of_the_stream(raw: bytes) -> None:
    assert await read_body(stream(raw)) is None


async def test_a_stream_that_ends_within_a_body() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await read_body(stream(b"Content-Length: 20\r\n\r\n{}"))


@pytest.mark.parametrize("raw", [b"1", b"null", b"[]", b"{}", b'{"jsonrpc": "1.0"}', b'{"jsonrpc": "2.0", "id": NaN}'])
def test_json_that_is_no_message(raw: bytes) -> None:
    with pytest.raises(JsonRpcInvalidRequest) as refused:
        parse(raw)
    assert raw.decode() in str(refused.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(raw: bytes) -> None:
    with pytest.raises((JsonRpcParseError, JsonRpcInvalidRequest)):
        parse(raw)


def test_objects_within_a_message_are_left_alone() -> None:
    message = parse(b'{"jsonrpc": "2.0", "method": "x", "params": {"jsonrpc": "2.0", "id": {}}}')
    assert message["params"] == {"jsonrpc": "2.0", "id": {}}

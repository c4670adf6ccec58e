"""Messages on a stream: their headers as clients write them, and streams that cannot be followed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygls.exceptions import JsonRpcInvalidRequest, JsonRpcParseError

from lsp_server.framing import Framer, parse


def bodies(raw: bytes) -> list[bytes]:
    framer = Framer()
    framer.feed(raw)
    return list(whole(framer))


def whole(framer: Framer) -> Iterator[bytes]:
    while (body := framer.next_body()) is not None:
        yield body


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length:2\r\n\r\n",
        b"CONTENT-LENGTH: 2 \r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n",
        b"X: y\r\nContent-Length: 2\r\n\r\n",
        b"\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length: 2\n\n",
        b"Content-Length: 2\r\n \r\n",
    ],
)
def test_headers_as_clients_write_them(headers: bytes) -> None:
    assert bodies(headers + b"{}" + headers + b"[]") == [b"{}", b"[]"]


@pytest.mark.parametrize(
    "headers",
    [b"Hello: there", b"Content-Length: abc", b"Content-Length: -1", b"Content-Length: " + b"9" * 5000, b"x" * 100_000],
)
def test_headers_without_a_length_are_passed_over(headers: bytes) -> None:
    framer = Framer()
    framer.feed(headers + b"\r\n\r\nContent-Length: 2\r\n\r\n{}")
    with pytest.raises(JsonRpcParseError) as refused:
        framer.next_body()
    assert len(str(refused.value)) < 300
    body = None
    while body is None:
        with contextlib.suppress(JsonRpcParseError):  # over what is left of a header without an end
            body = framer.next_body()
    assert body == b"{}"


@pytest.mark.parametrize("raw", [b"", b"Content-Length: 2\r\n", b"Content-Le", b"Content-Length: 3\r\n\r\n{}"])
def test_a_message_that_has_not_come_whole(raw: bytes) -> None:
    framer = Framer()
    framer.feed(raw)
    assert framer.next_body() is None


@given(st.lists(st.binary(max_size=30), max_size=5), st.data())
def test_however_a_stream_is_cut_its_messages_are_the_same(sent: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in sent)
    framer, found = Framer(), []
    while raw:
        piece = data.draw(st.integers(1, len(raw)))
        framer.feed(raw[:piece])
        raw = raw[piece:]
        found += whole(framer)
    assert found == sent
    assert framer.buffered == 0


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

"""LSP's base protocol: messages as they follow each other on a stream, each behind headers that say its length."""

from __future__ import annotations

import json
import re
from typing import Any

from pygls.exceptions import JsonRpcInvalidRequest, JsonRpcParseError

from lsp_server.mistakes import shorten

_END_OF_HEADERS = re.compile(rb"\n[ \t]*\r?\n")
_HEADER_BYTES = 65_536
_LENGTH = re.compile(rb"[0-9]{1,18}")


class Framer:
    """Cuts a stream into the bodies of its messages, however it arrives in pieces.

    Headers are those of HTTP: their names in upper or lower case, and what is not known passed over.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: int | None = None  # of the body that comes next, where its headers have been read

    @property
    def buffered(self) -> int:
        """How many bytes are waiting."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        self._buffer += data

    def next_body(self) -> bytes | None:
        """The body of the next message; None where the end of it has not come yet.

        JsonRpcParseError for headers without a length, or without an end; what follows them is taken for the next ones.
        """
        if self._length is None:
            headers = self._next_headers()
            if headers is None:
                return None
            self._length = _content_length(headers)
        if len(self._buffer) < self._length:
            return None
        body = self._take(self._length)
        self._length = None
        return body

    def _next_headers(self) -> bytes | None:
        if end := _END_OF_HEADERS.search(self._buffer, 0, _HEADER_BYTES):
            return self._take(end.end())
        if len(self._buffer) < _HEADER_BYTES:
            return None
        raise JsonRpcParseError(f"a header without an end: {_shown(self._take(_HEADER_BYTES))}")

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def parse(body: bytes) -> dict[str, Any]:
    """The message in a body; JsonRpcParseError where it is not JSON, JsonRpcInvalidRequest where it is no message."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JsonRpcParseError(f"not JSON: {error}: {_shown(body)}") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise JsonRpcInvalidRequest(f"no message of JSON-RPC 2.0: {_shown(body)}")
    if not isinstance(message.get("id"), str | int | None):
        raise JsonRpcInvalidRequest(f"no id of a message: {_shown(body)}")
    return message


def _content_length(headers: bytes) -> int:
    for line in headers.splitlines():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and _LENGTH.fullmatch(value.strip()):
            return int(value)
    raise JsonRpcParseError(f"no Content-Length: {_shown(headers)}")


def _shown(raw: bytes) -> str:
    return repr(shorten(raw[:1000].decode("utf-8", "replace")))

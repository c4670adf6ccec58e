"""LSP's base protocol: messages as they follow each other on a stream, each behind headers that say its length."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pygls.exceptions import JsonRpcInvalidRequest, JsonRpcParseError

from lsp_server.mistakes import shorten

if TYPE_CHECKING:
    from pygls.io_ import AsyncReader


async def read_body(reader: AsyncReader) -> bytes | None:
    """The body of the next message; None where the stream ends, be it in the middle of one.

    Headers are those of HTTP: their names in upper or lower case, and what is not known passed over. JsonRpcParseError
    for headers without a length, or without an end; what follows them is taken for the next ones.
    """
    headers = b""
    try:
        while (line := await reader.readline()).strip():
            headers += line
    except ValueError as error:  # longer than the reader takes
        raise JsonRpcParseError(f"a header without an end: {error}") from error
    if not line:
        return None
    length = _content_length(headers)
    body = await reader.readexactly(length)
    return body if len(body) == length else None


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
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    raise JsonRpcParseError(f"no Content-Length: {_shown(headers)}")


def _shown(raw: bytes) -> str:
    return repr(shorten(raw[:1000].decode("utf-8", "replace")))

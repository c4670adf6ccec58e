"""Sends a response piece by piece: server-sent events or lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec
from starlette.responses import Response, StreamingResponse

from protocol.errors import MidfillError

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    """A server-sent event with `value` as JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def line(value: object) -> bytes:
    """`value` as JSON on a line of its own."""
    return msgspec.json.encode(value) + b"\n"


async def streamed(
    pieces: AsyncGenerator[bytes], media_type: str, failure: Callable[[MidfillError], bytes]
) -> Response:
    """A response of these pieces. Raises what the first one raises; a later error becomes the last piece."""
    first = await anext(pieces)

    async def content() -> AsyncGenerator[bytes]:
        async with aclosing(pieces):
            yield first
            try:
                async for piece in pieces:
                    yield piece
            except MidfillError as error:
                yield failure(error)

    return StreamingResponse(content(), media_type=media_type, headers={"Cache-Control": "no-cache"})

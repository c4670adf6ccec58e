"""Sends a response piece by piece: server-sent events or lines of JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from protocol.errors import MidfillError

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
DONE = b"data: [DONE]\n\n"
STALLED_AFTER_S = 30.0

log = logging.getLogger(__name__)


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

    return _Streamed(content(), media_type)


class _Streamed(StreamingResponse):
    """Ends if its client reads nothing for STALLED_AFTER_S, so that it does not keep the core at work."""

    def __init__(self, content: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(content, media_type=media_type, headers={"Cache-Control": "no-cache"})
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(STALLED_AFTER_S):
                    await send(message)
            except TimeoutError:
                log.warning("dropping a client that has read nothing of its stream for %g s", STALLED_AFTER_S)
                raise

        async with aclosing(self._content):
            with suppress(TimeoutError, ClientDisconnect):  # Starlette makes the one of the other
                await super().__call__(scope, receive, send_in_time)

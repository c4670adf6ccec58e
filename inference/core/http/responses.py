"""HTTP responses: streams sent piece by piece, and errors as `{"error": {"message", "type", "code"}}` with their
status, or as `{"error": "message"}` on Ollama's paths.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ExceptionHandler, Message, Receive, Scope, Send

from protocol.errors import BadInput, BadModel, Busy, Cancelled, EngineUnavailable, MidfillError

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
DONE = b"data: [DONE]\n\n"
OLLAMA_PATHS = "/api/"
STALLED_AFTER_S = 30.0

log = logging.getLogger(__name__)


def event(value: object) -> bytes:
    """A server-sent event with `value` as JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def line(value: object) -> bytes:
    """`value` as JSON on a line of its own."""
    return msgspec.json.encode(value) + b"\n"


async def streamed(pieces: AsyncGenerator[bytes], media_type: str, failure: Callable[[MidfillError], bytes]) -> Response:
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


_TYPES = {  # OpenAI's names
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_CODES = {401: "unauthorized", 403: "forbidden"}


def error_response(status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """One error as JSON, in the form of its path's API. `code` defaults to the name of the status."""
    return _Error(status, message, code, headers)


class _Error(JSONResponse):
    def __init__(self, status: int, message: str, code: str | None, headers: Mapping[str, str] | None) -> None:
        super().__init__(_body(status, message, code), status, headers)
        self._for_ollama = JSONResponse({"error": message}, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_ollamas = scope["path"].startswith(OLLAMA_PATHS)
        await (self._for_ollama(scope, receive, send) if is_ollamas else super().__call__(scope, receive, send))


def error_event(error: MidfillError) -> bytes:
    """An error that ends a stream that has begun, as a server-sent event."""
    return event(_body(status_of(error)[0], str(error), error.code))


def status_of(error: MidfillError) -> tuple[int, dict[str, str]]:
    """The HTTP status of an error, and its headers."""
    if isinstance(error, Busy):
        return 429, {"Retry-After": str(error.retry_after_s)}
    return 503 if isinstance(error, BadModel | Cancelled | EngineUnavailable) else 400 if isinstance(error, BadInput) else 500, {}


def _body(status: int, message: str, code: str | None) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = code or _CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")
    return {"error": {"message": message, "type": kind, "code": code}}


def _midfill_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MidfillError)
    status, headers = status_of(error)
    return error_response(status, str(error), error.code, headers)


def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = error.detail
    if detail == HTTPStatus(error.status_code).phrase:  # from Starlette's router
        detail = f"{detail}: {request.method} {request.url.path:.200}"
    return error_response(error.status_code, detail, headers=error.headers)


def _client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # never sent: the client has disconnected


def _unexpected(_request: Request, error: Exception) -> Response:
    return error_response(500, f"the core failed: {error!r}")


HANDLERS: dict[int | type[Exception], ExceptionHandler] = {
    MidfillError: _midfill_error,
    HTTPException: _http_exception,
    ClientDisconnect: _client_gone,
    Exception: _unexpected,
}

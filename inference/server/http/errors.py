"""Turns errors into HTTP answers: `{"error": {"message", "type", "code"}}` with the status that clients expect."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from inference.server.http.streaming import event
from protocol.errors import BadInput, BadModel, Busy, Cancelled, EngineUnavailable, MidfillError

_TYPES = {  # OpenAI's names
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_CODES = {401: "unauthorized", 403: "forbidden"}


def error_response(
    status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """One error as JSON. `code` defaults to the name of the status."""
    return JSONResponse(_body(status, message, code), status, headers)


def error_event(error: MidfillError) -> bytes:
    """An error that ends a stream that has begun, as a server-sent event."""
    return event(_body(status_of(error)[0], str(error), error.code))


def status_of(error: MidfillError) -> tuple[int, dict[str, str]]:
    """The HTTP status of an error, and its headers."""
    if isinstance(error, Busy):
        return 429, {"Retry-After": str(error.retry_after_s)}
    return 503 if isinstance(error, BadModel | Cancelled | EngineUnavailable) else 400 if isinstance(
        error, BadInput
    ) else 500, {}


def _body(status: int, message: str, code: str | None) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = code or _CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")
    return {"error": {"message": message, "type": kind, "code": code}}


def _midfill_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MidfillError)
    status, headers = status_of(error)
    return error_response(status, str(error), error.code, headers)


def _http_exception(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, error.detail, headers=error.headers)


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

"""Turns errors into HTTP answers: `{"error": {"message", "type", "code"}}` with the status that clients expect."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from protocol.errors import BadInput, BadModel, Busy, Cancelled, EngineUnavailable, MidfillError

RETRY_AFTER_S = 1
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
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = code or _CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")
    return JSONResponse({"error": {"message": message, "type": kind, "code": code}}, status, headers)


def _midfill_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MidfillError)
    if isinstance(error, Busy):
        return error_response(429, str(error), error.code, {"Retry-After": str(RETRY_AFTER_S)})
    is_temporary = isinstance(error, BadModel | Cancelled | EngineUnavailable)
    status = 503 if is_temporary else 400 if isinstance(error, BadInput) else 500
    return error_response(status, str(error), error.code)


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

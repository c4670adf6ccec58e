"""Who may talk to the core: whoever shows the token, and no web page unless it is allowed."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket


class RequireToken:
    """ASGI middleware that answers 401 without `Authorization: Bearer TOKEN`, and 403 to a foreign Origin.

    Browsers send an Origin, other programs do not; a page that the user happens to visit must not reach the core.
    WebSockets are refused in the handshake, before any message is read.
    """

    def __init__(self, app: ASGIApp, token: str, allowed_origins: Collection[str] = ()) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._allowed_origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(HTTPConnection(scope).headers)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(refusal)
        else:
            await refusal(scope, receive, send)

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        origin = headers.get("origin")
        if origin is not None and origin not in self._allowed_origins:
            return _error(403, "forbidden", f"web pages of {origin!r} may not use this core")
        shown = headers.get("authorization", "").encode()
        if not secrets.compare_digest(shown, self._expected):
            return _error(401, "unauthorized", "show the core's token: Authorization: Bearer TOKEN")
        return None


def _error(status: int, code: str, message: str) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers=headers)

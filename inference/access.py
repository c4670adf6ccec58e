"""Who may talk to the core: whoever shows the token, and no web page unless it is allowed."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from protocol.proof import PROOF_PATH, proof


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody may not: the HTTP status, and the error's code and message."""

    status: int
    code: str
    message: str


class Access:
    """Refuses with 401 without `Authorization: Bearer TOKEN`, and with 403 a foreign Origin.

    Browsers send an Origin, other programs do not; a page that the user happens to visit must not reach the core.
    """

    def __init__(self, token: str, allowed_origins: Collection[str] = ()) -> None:
        self._token = token
        self._expected = f"Bearer {token}".encode()
        self._allowed_origins = frozenset(allowed_origins)

    def proof(self, nonce: str, port: int) -> str:
        """Proves to a client of this port that the core knows the token."""
        return proof(self._token, nonce, port)

    def refusal(self, origin: str | None, authorization: str | None) -> Refusal | None:
        """Judge by two headers of a request, which may be missing; None lets it in."""
        if origin is not None and origin not in self._allowed_origins:
            return Refusal(403, "forbidden", f"web pages of {origin!r} may not use this core")
        if not secrets.compare_digest((authorization or "").encode(errors="replace"), self._expected):
            return Refusal(401, "unauthorized", "show the core's token: Authorization: Bearer TOKEN")
        return None


class RequireAccess:
    """ASGI middleware that answers requests which are refused; the core's own proof needs no token."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: ASGIApp = self._app
        if scope["type"] == "http":
            headers = HTTPConnection(scope).headers
            refusal = self._access.refusal(headers.get("origin"), headers.get("authorization"))
            if refusal is not None and not (refusal.status == 401 and scope["path"] == PROOF_PATH):
                response = _response(refusal)
        await response(scope, receive, send)


def _response(refusal: Refusal) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
    return JSONResponse({"error": {"code": refusal.code, "message": refusal.message}}, refusal.status, headers=headers)

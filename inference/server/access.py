"""Decides which requests may use the core: those with the token, under a known host name, from no foreign web page."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from inference.server.http.errors import error_response
from protocol.proof import PROOF_PATH, proof

SUBPROTOCOL = "midfill"
TOKEN_SUBPROTOCOL = "midfill.bearer."
"""Offered with the token appended, beside SUBPROTOCOL, by browsers, which cannot set a WebSocket's headers."""

PUBLIC_PATHS = frozenset({"/health", PROOF_PATH})
"""Answered without the token too; the handlers then reveal nothing confidential."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: the HTTP status and a message."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class HostNames:
    """The names under which the core may be addressed, besides loopback's.

    A web page can point a name of its own at this machine (DNS rebinding); its requests carry that name as their Host.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False  # the core listens on every address: accept any IP address in Host

    def include(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names the core."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.any_address


class Access:
    """Judges requests by their headers."""

    def __init__(self, token: str, allowed_origins: Collection[str] = (), hosts: HostNames | None = None) -> None:
        self.allowed_origins = frozenset(allowed_origins)
        self._token = token
        self._hosts = hosts or HostNames()

    def proof(self, nonce: str, port: int) -> str:
        """Proves to a client of this port that the core knows the token."""
        return proof(self._token, nonce, port)

    def foreign(self, headers: Headers) -> Refusal | None:
        """Why a request's Host or Origin is refused. Browsers send an Origin, other programs do not."""
        for host in headers.getlist("host"):
            if not self._hosts.include(host):
                return Refusal(
                    421, f"this core does not accept the host name {host!r}: start it with --allow-host to add the name"
                )
        for origin in headers.getlist("origin"):
            if origin not in self.allowed_origins:
                return Refusal(
                    403,
                    f"this core does not accept web pages of {origin!r}: start it with --allow-origin to add the "
                    "origin",
                )
        return None

    def has_token(self, headers: Headers, *, is_websocket: bool = False) -> bool:
        """Whether the request carries the token, exactly once."""
        shown = headers.getlist("authorization")
        if is_websocket and not shown:
            offered = [name.strip() for name in ",".join(headers.getlist("sec-websocket-protocol")).split(",")]
            tokens = [name.removeprefix(TOKEN_SUBPROTOCOL) for name in offered if name.startswith(TOKEN_SUBPROTOCOL)]
            shown = [f"Bearer {token}" for token in tokens]
        return len(shown) == 1 and secrets.compare_digest(shown[0].encode(), f"Bearer {self._token}".encode())


class RefuseForeign:
    """ASGI middleware that refuses requests by their Host and Origin."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._app
        if scope["type"] != "lifespan":
            refusal = self._access.foreign(Headers(scope=scope))
            if refusal is not None:
                response = error_response(refusal.status, refusal.message)
        await response(scope, receive, send)


class RequireToken:
    """ASGI middleware that refuses requests without the token, and reports the client of each one with it."""

    def __init__(self, app: ASGIApp, access: Access, admit: Callable[[tuple[str, int]], None]) -> None:
        self._app = app
        self._access = access
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._app
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            scope["has_token"] = self._access.has_token(headers, is_websocket=scope["type"] == "websocket")
            if scope["has_token"]:
                self._admit(scope["client"])
            elif scope["path"] not in PUBLIC_PATHS or "authorization" in headers:
                response = error_response(
                    401, "send the core's token: Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"}
                )
        await response(scope, receive, send)

"""Decides which requests may use the core: those with a token, under a known host name, from no foreign web page."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from inference.core.connections import REQUEST_S, STRANGER_WAIT_S, Address, LoopShares
from inference.core.http.responses import error_response
from inference.core.users import User, Users
from inference.engine.request import turn_of
from protocol.tokens import PROOF_PATH, proof

SUBPROTOCOL = "midfill"
TOKEN_SUBPROTOCOL = "midfill.bearer."
"""Offered with the token appended, beside SUBPROTOCOL, by browsers, which cannot set a WebSocket's headers."""

PUBLIC_PATHS = frozenset({"/", "/health", PROOF_PATH})
"""Answered without the token too; the handlers then reveal nothing confidential."""


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

    def __init__(
        self, token: str, allowed_origins: Collection[str] = (), hosts: HostNames | None = None, users: Users | None = None
    ) -> None:
        """`token` is the core's own; without `users` it is the only one."""
        self._users = users
        self.allowed_origins = frozenset(allowed_origins)
        self._token = token
        self._hosts = hosts or HostNames()

    def proof(self, nonce: str, port: int, token_id: str = "", host: str = "") -> str:
        """Proves to a client of this port that the core knows its own token, or a user's: see `protocol.tokens`."""
        if token_id and self._users is not None:
            return proof(self._users.digest_of(token_id), nonce, host)
        return proof(self._token, nonce, port)

    def foreign(self, headers: Headers) -> Response | None:
        """The refusal of a request for its Host or Origin. Browsers send an Origin, other programs do not."""
        for host in headers.getlist("host"):
            if not self._hosts.include(host):
                return error_response(
                    421, f"this core does not accept the host name {host!r}: start it with --allow-host to add the name"
                )
        for origin in headers.getlist("origin"):
            if origin not in self.allowed_origins:
                return error_response(
                    403, f"this core does not accept web pages of {origin!r}: start it with --allow-origin to add the origin"
                )
        return None

    def user(self, headers: Headers, *, is_websocket: bool = False) -> User | None:
        """The user whose token the request carries, exactly once; None without a valid one."""
        shown = headers.getlist("authorization")
        if is_websocket and not shown:
            offered = [name.strip() for name in ",".join(headers.getlist("sec-websocket-protocol")).split(",")]
            tokens = [name.removeprefix(TOKEN_SUBPROTOCOL) for name in offered if name.startswith(TOKEN_SUBPROTOCOL)]
            shown = [f"Bearer {token}" for token in tokens]
        if len(shown) != 1 or not shown[0].startswith("Bearer "):
            return None
        token = shown[0].removeprefix("Bearer ")
        if secrets.compare_digest(token.encode(), self._token.encode()):
            return User()
        return self._users.find(token) if self._users is not None else None


class RefuseForeign:
    """ASGI middleware that refuses requests by their Host and Origin."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._access.foreign(Headers(scope=scope)) if scope["type"] != "lifespan" else None
        await (refusal or self._app)(scope, receive, send)


class RequireToken:
    """ASGI middleware that refuses requests without a token, and reports the client of each one with it.

    Whoever sends too many waits; requests without a token do not count against those with it.
    """

    def __init__(self, app: ASGIApp, access: Access, admit: Callable[[Address], None], shares: LoopShares) -> None:
        self._app = app
        self._access = access
        self._admit = admit
        self._shares = shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._app
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            user = scope["user"] = self._access.user(headers, is_websocket=scope["type"] == "websocket")
            host, path = (scope["client"] or ("",))[0], scope["path"]
            if user is None:
                await self._shares.pay(f"stranger {host}", REQUEST_S, STRANGER_WAIT_S)
            else:
                await self._shares.pay(turn_of(f"http {host}", user.name), REQUEST_S)
            if user is not None:
                self._admit((scope["client"], scope["server"]))
                if not user.may_use(path):
                    response = error_response(403, f"a token of the role {user.role!r} is not for {path}")
            elif path not in PUBLIC_PATHS or "authorization" in headers:  # a wrong token is refused everywhere
                response = error_response(
                    401, "send the core's token: Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"}
                )
        await response(scope, receive, send)

"""The core's ASGI application: its HTTP and WebSocket routes, their access checks and their error handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from inference.server.admission.access import Access, RefuseForeign, RequireToken
from inference.server.admission.connections import Connections
from inference.server.draining import Draining, RefuseWhileDraining
from inference.server.http.errors import HANDLERS, error_response
from inference.server.http_api import HttpApi
from inference.server.pages.dashboard import Dashboard
from protocol.errors import BadInput
from protocol.proof import NONCE_LENGTHS, PROOF_PATH


def make_app(
    http: HttpApi,
    serve_websocket: Callable[[WebSocket], Awaitable[None]],
    access: Access,
    connections: Connections,
    draining: Draining,
    dashboard: Dashboard,
) -> Starlette:
    """The application; every route requires the token, except liveness, the core's proof and the files of web pages."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=sorted(access.allowed_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "X-Session-ID"],
        expose_headers=["Retry-After"],
    )

    async def prove(request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        if len(nonce) not in NONCE_LENGTHS:
            raise BadInput(f"the nonce has {len(nonce)} characters: send {NONCE_LENGTHS[0]} to {NONCE_LENGTHS[-1]}")
        _, port = request.scope["server"]
        token_id, host = request.query_params.get("id", ""), request.headers.get("host", "")
        return PlainTextResponse(access.proof(nonce, port, token_id, host))

    return Starlette(
        routes=[
            Route(PROOF_PATH, prove),
            *http.routes,
            *dashboard.routes,
            WebSocketRoute("/ws", serve_websocket),
            WebSocketRoute("/{path:path}", _no_websocket),
        ],
        middleware=[
            Middleware(RefuseForeign, access=access),
            cors,
            Middleware(RefuseWhileDraining, draining=draining),
            Middleware(RequireToken, access=access, admit=connections.admit),
        ],
        exception_handlers=HANDLERS,
    )


async def _no_websocket(websocket: WebSocket) -> None:
    path = websocket.url.path
    await websocket.send_denial_response(error_response(404, f"no WebSocket at {path}: connect to /ws"))

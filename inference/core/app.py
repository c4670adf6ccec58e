"""The core's ASGI application: its HTTP and WebSocket routes, their access checks and their error handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from inference.core.admission import Access, RefuseForeign, RequireToken
from inference.core.connections import Connections, LoopShares
from inference.core.http.bodies import BodyReader
from inference.core.http.llama_cpp import LlamaCpp
from inference.core.http.ollama import Ollama
from inference.core.http.openai import OpenAI
from inference.core.http.requests import Asking
from inference.core.http.responses import HANDLERS, error_response
from inference.core.http.text_anchors import TextAnchors
from inference.core.lifecycle import ConnectedClients
from inference.core.metrics import Metrics
from inference.core.scheduler import Scheduler
from protocol.errors import BadInput
from protocol.tokens import NONCE_LENGTHS, PROOF_PATH


class HttpApi:
    """Handlers that share the WebSocket's scheduler."""

    def __init__(self, scheduler: Scheduler, clients: ConnectedClients, metrics: Metrics, anchors: TextAnchors) -> None:
        self._scheduler = scheduler
        self._clients = clients
        self._metrics = metrics
        asking, bodies = Asking(scheduler, clients.visit, anchors), BodyReader()
        self._apis = [api(asking, bodies) for api in (OpenAI, LlamaCpp, Ollama)]

    @property
    def routes(self) -> list[Route]:
        """The paths of all APIs."""
        routes = [Route("/health", self.health), Route("/metrics", self.metrics)]
        return [*routes, *(route for api in self._apis for route in api.routes)]

    async def health(self, request: Request) -> Response:
        """The core's status, with 503 if its model cannot be loaded; without the token, only that the core is alive."""
        if request.scope["user"] is None:
            return JSONResponse({"status": "ok"})
        status = self._scheduler.status
        body = {"status": status.state, "model": status.model, "detail": status.detail}
        return JSONResponse(body, 503 if status.state == "failed" else 200)

    async def metrics(self, _request: Request) -> Response:
        loaded = self._scheduler.status.state == "ready"
        text = self._metrics.render(self._clients.connections, loaded, self._scheduler.residency)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def make_app(
    http: HttpApi,
    serve_websocket: Callable[[WebSocket], Awaitable[None]],
    access: Access,
    connections: Connections,
    shares: LoopShares,
) -> Starlette:
    """The application; every route requires the token, except liveness and the core's proof."""
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
            WebSocketRoute("/ws", serve_websocket),
            WebSocketRoute("/{path:path}", _no_websocket),
        ],
        middleware=[
            Middleware(RefuseForeign, access=access),
            cors,
            Middleware(RequireToken, access=access, admit=connections.admit, shares=shares),
        ],
        exception_handlers=HANDLERS,
    )


async def _no_websocket(websocket: WebSocket) -> None:
    path = websocket.url.path
    await websocket.send_denial_response(error_response(404, f"no WebSocket at {path}: connect to /ws"))

"""The core over HTTP as an ASGI application: its routes, who may use them, and the errors that they share."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from inference.access import Access, RequireAccess
from inference.http_api import HttpApi, error_response
from inference.metrics import Metrics
from inference.presence import Presence
from inference.scheduler import Scheduler
from protocol.errors import BadInput, MidfillError
from protocol.proof import NONCE_LENGTHS, PROOF_PATH


def make_app(scheduler: Scheduler, presence: Presence, metrics: Metrics, access: Access) -> Starlette:
    """The application; every route but the proof asks for the token. `websocket_transport` serves the WebSocket."""
    http = HttpApi(scheduler, presence, metrics)

    async def prove(request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        if len(nonce) not in NONCE_LENGTHS:
            raise BadInput(f"a nonce of {len(nonce)} characters: send {NONCE_LENGTHS[0]} to {NONCE_LENGTHS[-1]}")
        _, port = request.scope["server"]
        return PlainTextResponse(access.proof(nonce, port))

    return Starlette(
        routes=[
            Route(PROOF_PATH, prove),
            Route("/health", http.health),
            Route("/metrics", http.metrics),
            Route("/infill", http.infill, methods=["POST"]),
            Route("/v1/completions", http.completions, methods=["POST"]),
        ],
        middleware=[Middleware(RequireAccess, access=access)],
        exception_handlers={MidfillError: error_response},
    )

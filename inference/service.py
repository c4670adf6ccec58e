"""The core as an ASGI application: its routes, its token, and the errors that they share."""

from __future__ import annotations

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute

from inference.access import RequireToken
from inference.http_api import HttpApi, error_response
from inference.metrics import Metrics
from inference.presence import Presence
from inference.scheduler import Scheduler
from inference.websocket_api import WebSocketApi
from protocol.errors import MidfillError


def make_app(
    scheduler: Scheduler, presence: Presence, metrics: Metrics, token: str, allowed_origins: Collection[str] = ()
) -> Starlette:
    """The application; every route asks for the token."""
    http = HttpApi(scheduler, presence, metrics)
    return Starlette(
        routes=[
            WebSocketRoute("/ws", WebSocketApi(scheduler, presence).serve),
            Route("/health", http.health),
            Route("/metrics", http.metrics),
            Route("/infill", http.infill, methods=["POST"]),
            Route("/v1/completions", http.completions, methods=["POST"]),
        ],
        middleware=[Middleware(RequireToken, token=token, allowed_origins=allowed_origins)],
        exception_handlers={MidfillError: error_response},
    )

"""The core over HTTP as an ASGI application: its routes, who may use them, and the errors that they share."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from inference.access import Access, RequireAccess
from inference.http_api import HttpApi, error_response
from inference.metrics import Metrics
from inference.presence import Presence
from inference.scheduler import Scheduler
from protocol.errors import MidfillError


def make_app(scheduler: Scheduler, presence: Presence, metrics: Metrics, access: Access) -> Starlette:
    """The application; every route asks for the token. The WebSocket beside it is `websocket_transport`'s."""
    http = HttpApi(scheduler, presence, metrics)
    return Starlette(
        routes=[
            Route("/health", http.health),
            Route("/metrics", http.metrics),
            Route("/infill", http.infill, methods=["POST"]),
            Route("/v1/completions", http.completions, methods=["POST"]),
        ],
        middleware=[Middleware(RequireAccess, access=access)],
        exception_handlers={MidfillError: error_response},
    )

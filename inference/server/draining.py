"""Ends the core at a signal once the requests that it has are answered."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from inference.server.http.errors import error_response

_ALSO_ANSWERED = frozenset({"/metrics"})

log = logging.getLogger(__name__)


class Draining:
    """From the first signal on, new requests are refused and /health says so; a second signal ends the core at once."""

    def __init__(
        self, is_idle: Callable[[], bool], limit_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`is_idle` says whether the scheduler has no request. After `limit_s` seconds the core ends in any case."""
        self.has_begun = False
        self.http_requests = 0  # in progress; one may ask the scheduler several times
        self._is_idle = is_idle
        self._limit_s = limit_s
        self._clock = clock
        self._until = 0.0

    def is_over(self, signals: int) -> bool:
        """Whether the core must end now, after so many signals."""
        if signals and not self.has_begun:
            self.has_begun = True
            self._until = self._clock() + self._limit_s
            log.info("ending: requests have at most %g s to finish", self._limit_s)
        is_done = self._is_idle() and not self.http_requests
        return bool(signals) and (signals > 1 or is_done or self._clock() >= self._until)


class RefuseWhileDraining:
    """ASGI middleware that counts requests, and refuses new ones while the core ends."""

    def __init__(self, app: ASGIApp, draining: Draining) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._app
        if scope["type"] != "lifespan" and self._draining.has_begun and scope["path"] not in _ALSO_ANSWERED:
            response = error_response(503, "the core is shutting down")
            if scope["path"] == "/health":
                response = JSONResponse({"status": "draining"}, 503)
        counted = scope["type"] == "http"
        self._draining.http_requests += counted
        try:
            await response(scope, receive, send)
        finally:
            self._draining.http_requests -= counted

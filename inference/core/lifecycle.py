"""The life cycle of the core: its connected clients, its end at their request, and the answers it still owes at a
signal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from inference.core.http.responses import error_response
from protocol.messages import CoreStatus
from protocol.wire import StopHow

Listener = Callable[[CoreStatus], None]


class ConnectedClients:
    """Thread-safe. `announce` calls the listeners on its caller's thread, so they must not block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._count = 0
        self._left_at = time.monotonic()

    @property
    def connections(self) -> int:
        return len(self._listeners)

    @property
    def count(self) -> int:
        """Number of connected clients, including those with an HTTP request in progress."""
        with self._lock:
            return self._count

    def alone_for_s(self) -> float:
        """Seconds since the last client left; 0 while a client is present."""
        with self._lock:
            return 0.0 if self._count else time.monotonic() - self._left_at

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Count a client as present for the duration of the context."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                self._left_at = time.monotonic()

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """A visit whose `listener` receives every announced status."""
        with self.visit():
            with self._lock:
                self._listeners.append(listener)
            try:
                yield
            finally:
                with self._lock:
                    self._listeners.remove(listener)

    def announce(self, status: CoreStatus) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(status)


_ALSO_ANSWERED = frozenset({"/metrics"})

log = logging.getLogger(__name__)


class Draining:
    """From the first signal on, new requests are refused and /health says so; a second signal ends the core at once."""

    def __init__(self, is_idle: Callable[[], bool], limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
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


class Shutdown:
    """Collects the clients' stop requests (`protocol.wire.Stop`). Thread-safe."""

    def __init__(self, clients: ConnectedClients, status: Callable[[], CoreStatus], *, replaceable: bool) -> None:
        """A core that is not `replaceable` was started by hand: only an explicit stop ends it."""
        self._clients = clients
        self._status = status
        self._replaceable = replaceable
        self._lock = threading.Lock()
        self._wishing: set[str] = set()  # clients that wait for a core with other settings
        self._now = False
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether clients must not start another core."""
        return self._stopped

    @property
    def due(self) -> bool:
        """Whether the core must end now."""
        with self._lock:
            return self._now or (0 < len(self._wishing) == self._clients.count)

    def ask(self, client: str, how: StopHow) -> str:
        """Register a client's stop request; returns "" if it takes effect, else why it does not, or not yet."""
        with self._lock:
            failed = self._status().state == "failed"
            if how != "stop" and not (self._replaceable or failed):
                return "it was started by hand: stop it with `midfill core stop`"
            if how != "replace" or failed:
                self._now = True
                self._stopped = how == "stop"
                return ""
            self._wishing.add(client)
            others = self._clients.count - len(self._wishing)
            return f"{others} other {'client uses' if others == 1 else 'clients use'} it" if others > 0 else ""

    def withdraw(self, client: str) -> None:
        """Forget the request of a client that has disconnected."""
        with self._lock:
            self._wishing.discard(client)

"""The life cycle of the core: its connected clients, and its end at their request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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

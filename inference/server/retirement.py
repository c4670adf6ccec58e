"""Decides whether the core ends at its clients' request."""

from __future__ import annotations

import threading
from collections.abc import Callable

from inference.server.clients import Presence
from protocol.messages import CoreStatus
from protocol.wire import StopHow


class Retirement:
    """Collects the clients' stop requests (`protocol.wire.Stop`). Thread-safe."""

    def __init__(self, presence: Presence, status: Callable[[], CoreStatus], *, replaceable: bool) -> None:
        """A core that is not `replaceable` was started by hand: only an explicit stop ends it."""
        self._presence = presence
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
            return self._now or (0 < len(self._wishing) == self._presence.present)

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
            others = self._presence.present - len(self._wishing)
            return f"{others} other {'client uses' if others == 1 else 'clients use'} it" if others > 0 else ""

    def withdraw(self, client: str) -> None:
        """Forget the request of a client that has disconnected."""
        with self._lock:
            self._wishing.discard(client)

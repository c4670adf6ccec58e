"""Who is connected to the core, and how long nobody has been; tells them what the core is doing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protocol.messages import CoreStatus

Listener = Callable[[CoreStatus], None]


class Presence:
    """Any thread may use it; listeners must not block and are called by whoever announces."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._present = 0
        self._left_at = time.monotonic()

    @property
    def connections(self) -> int:
        """How many clients listen."""
        return len(self._listeners)

    @property
    def present(self) -> int:
        """How many clients are here, those that ask over HTTP included."""
        with self._lock:
            return self._present

    def alone_for_s(self) -> float:
        """How long nobody has been here; 0 while somebody is."""
        with self._lock:
            return 0.0 if self._present else time.monotonic() - self._left_at

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Somebody is here while this lasts."""
        with self._lock:
            self._present += 1
        try:
            yield
        finally:
            with self._lock:
                self._present -= 1
                self._left_at = time.monotonic()

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """A visit that is told of every change."""
        with self.visit():
            with self._lock:
                self._listeners.append(listener)
            try:
                yield
            finally:
                with self._lock:
                    self._listeners.remove(listener)

    def announce(self, status: CoreStatus) -> None:
        """Tell everybody who listens."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(status)

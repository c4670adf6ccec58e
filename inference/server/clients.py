"""Tracks the clients connected to the core and the time without any, and announces the core's status to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protocol.messages import CoreStatus

Listener = Callable[[CoreStatus], None]


class Presence:
    """Thread-safe. `announce` calls the listeners on its caller's thread, so they must not block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._present = 0
        self._left_at = time.monotonic()

    @property
    def connections(self) -> int:
        return len(self._listeners)

    @property
    def present(self) -> int:
        """Number of present clients, including those with an HTTP request in progress."""
        with self._lock:
            return self._present

    def alone_for_s(self) -> float:
        """Seconds since the last client left; 0 while a client is present."""
        with self._lock:
            return 0.0 if self._present else time.monotonic() - self._left_at

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Count a client as present for the duration of the context."""
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

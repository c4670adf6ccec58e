"""The debounce before a request to the core: none if the core answers faster than the user types."""

from __future__ import annotations

import time
from collections.abc import Callable

_WEIGHT = 0.2  # of the newest observation
_REST_MS = 2000.0  # a longer interval is a rest, and does not count as typing speed


class Pace:
    """Learns how fast the user types and how fast the core answers, as moving averages in milliseconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_call: float | None = None
        self._interval_ms: float | None = None
        self._answer_ms: float | None = None

    def pause_s(self, limit_ms: int) -> float:
        """Record a request now; returns the seconds to wait before it goes to the core.

        If the user types faster than the core answers, most answers are outdated before they arrive. Then the
        pause is as long as an answer takes, but at most `limit_ms`.
        """
        now = self._clock()
        if self._last_call is not None and (interval_ms := (now - self._last_call) * 1000) < _REST_MS:
            self._interval_ms = _average(self._interval_ms, interval_ms)
        self._last_call = now
        if self._interval_ms is None or self._answer_ms is None or self._answer_ms < self._interval_ms:
            return 0.0
        return min(limit_ms, self._answer_ms) / 1000

    def answered(self, milliseconds: float) -> None:
        """Record how long the core took for an answer."""
        self._answer_ms = _average(self._answer_ms, milliseconds)


def _average(before: float | None, value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)

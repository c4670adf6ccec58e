"""Schedules when the model thread saves resident KV to disk: at rest, and at intervals under continuous load."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 0.02
"""Longest wait that a saving step adds to a request; a step saves at least one page."""

AT_LATEST_S = 30.0
"""Seconds after the last pass at which a new one begins without a rest."""

APART_S = 0.25
"""Seconds between two steps of a pass that begins without a rest."""


class SavingSchedule:
    """Decides when to call `save(seconds)`, which returns True when nothing is left to save: the pass has ended."""

    def __init__(self, save: Callable[[float], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._save = save
        self._clock = clock
        self._ended = self._stepped = clock()

    def step_at_rest(self) -> bool:
        """Run one saving step; True if the pass has ended."""
        is_over = self._save(STEP_S)
        self._stepped = self._clock()
        if is_over:
            self._ended = self._stepped
        return is_over

    def step_between_forwards(self) -> None:
        """Run one saving step if the last pass is older than AT_LATEST_S: this bounds what a killed process loses."""
        now = self._clock()
        if now - self._ended >= AT_LATEST_S and now - self._stepped >= APART_S:
            self.step_at_rest()

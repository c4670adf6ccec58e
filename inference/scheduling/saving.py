"""When the model thread saves what is resident to disk: at rest, and now and then while requests keep coming."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 0.02
"""How long a request may have to wait for a step, which takes one page at least."""

AT_LATEST_S = 30.0
"""So long after the last pass a new one begins without a rest."""

APART_S = 0.25
"""Between two steps of a pass that begins without a rest."""


class SavingSchedule:
    """Decides when `save(seconds)` is called. It returns True where nothing is left to be saved: a pass has ended."""

    def __init__(self, save: Callable[[float], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._save = save
        self._clock = clock
        self._ended = self._stepped = clock()

    def step_at_rest(self) -> bool:
        """Save some; whether the pass has ended."""
        is_over = self._save(STEP_S)
        self._stepped = self._clock()
        if is_over:
            self._ended = self._stepped
        return is_over

    def step_between_forwards(self) -> None:
        """Save some where there was no rest for so long that a killed process would lose too much."""
        now = self._clock()
        if now - self._ended >= AT_LATEST_S and now - self._stepped >= APART_S:
            self.step_at_rest()

"""Limits what one user takes of the core: requests at work, requests that wait, and tokens a minute."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from protocol.errors import Busy

MAX_WAITING = 64
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The most that each user may have; a client without a user counts as one."""

    requests: int | None = None  # for suggestions, at work together; None means as many as the engine has room for
    waiting: int = MAX_WAITING
    tokens_per_minute: int | None = None  # recomputed prompt tokens and generated ones; None means no limit


class TokenBudgets:
    """What each user may still spend: a budget holds a minute's tokens, and refills evenly. Not thread-safe.

    The cost of a request is known when it ends, so a budget can be overdrawn: then the user waits until the debt is
    repaid.
    """

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds_per_token = _MINUTE_S / per_minute if per_minute else 0.0
        self._per_minute = per_minute
        self._clock = clock
        self._full_at: dict[str, float] = {}  # when the budget is full again; budgets that are full have no entry

    def check(self, user: str) -> None:
        """Raise Busy, with the seconds to wait, if the budget is spent."""
        wait_s = self._full_at.get(user, -math.inf) - self._clock() - _MINUTE_S
        if wait_s >= 0:
            raise Busy(f"the limit of {self._per_minute} tokens a minute is reached", retry_after_s=wait_s)

    def spend(self, user: str, tokens: int) -> None:
        """Take the tokens of a request from the user's budget."""
        now = self._clock()
        self._full_at = {other: full_at for other, full_at in self._full_at.items() if full_at > now}
        if self._seconds_per_token and tokens:
            self._full_at[user] = self._full_at.get(user, now) + tokens * self._seconds_per_token

"""Opens web pages with a key of their own, so that a browser never holds the core's token."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

CODE_S = 120.0
"""Seconds within which a code must be used."""


class PageKeys:
    """One key, as long as this process runs, and codes that are each exchanged for it once.

    A link that a program opens in a browser carries a code, since other users of the machine may see its command line.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(32)
        self._now = now
        self._codes: dict[str, float] = {}  # with the time until which each is valid

    def new_code(self) -> str:
        self._codes = {code: until for code, until in self._codes.items() if until > self._now()}
        code = secrets.token_urlsafe(32)
        self._codes[code] = self._now() + CODE_S
        return code

    def admits(self, shown: str) -> bool:
        return secrets.compare_digest(shown.encode(), self.key.encode())

    def exchange(self, shown: str) -> str | None:
        """The key for the key itself or a valid code, which is then used up; None for anything else."""
        return self.key if self.admits(shown) or self._codes.pop(shown, 0.0) > self._now() else None

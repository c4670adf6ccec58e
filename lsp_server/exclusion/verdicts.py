"""Remembers which documents are excluded; a thread reads the disk, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

_KEEP_SECONDS = 2.0
_MOST_KNOWN = 4096
_UNKNOWN = "the ignore files have not been checked yet"


class Rules(Protocol):
    """The interface of `Exclusion` for verdicts; `reason` may take long, and is called by one thread at a time."""

    def reason(self, uri: str) -> str | None: ...


class Verdicts:
    """Remembers for each document the reason of its exclusion, if any; an unchecked document counts as excluded.

    A verdict holds for `keep_s` seconds; after half of them it is renewed in the background if its document is in use.
    """

    def __init__(self, rules: Rules, now: Callable[[], float] = time.monotonic, keep_s: float = _KEEP_SECONDS) -> None:
        self._rules, self._now, self._keep_s = rules, now, keep_s
        self._known: dict[str, tuple[float, str | None]] = {}  # the time of the check, and the reason; oldest first
        self._excluded: dict[str, str] = {}  # newly excluded since `take_excluded`: reasons by URI
        self._looking: asyncio.Task[None] | None = None

    def reason(self, uri: str) -> str | None:
        """The rule and file that exclude the document, by the last check; None if it may be used."""
        _, reason = self._known.get(uri, (0.0, _UNKNOWN))
        return reason

    def is_excluded(self, uri: str) -> bool:
        """Whether nothing of the document may enter a prompt, by the last check."""
        return self.reason(uri) is not None

    async def look(self, uris: Iterable[str], more: Iterable[str] = ()) -> None:
        """Return when the verdicts about `uris` are recent; a check that this needs includes `more`."""
        while self._is_any_older(uris, self._keep_s):
            looking = self._looking or self._start(uris, more)
            await asyncio.wait([looking])
            looking.result()

    def renew(self, uris: Iterable[str], more: Iterable[str] = ()) -> None:
        """Check in the background, so that the next `look` need not wait."""
        if self._looking is None and self._is_any_older(uris, self._keep_s / 2):
            self._start(uris, more)

    def take_excluded(self) -> dict[str, str]:
        """The documents newly found excluded since the last call: the reasons by URI."""
        taken, self._excluded = self._excluded, {}
        return taken

    def _is_any_older(self, uris: Iterable[str], seconds: float) -> bool:
        oldest = self._now() - seconds
        return any(uri not in self._known or self._known[uri][0] <= oldest for uri in uris)

    def _start(self, uris: Iterable[str], more: Iterable[str]) -> asyncio.Task[None]:
        wanted = [uri for uri in dict.fromkeys((*uris, *more)) if self._is_any_older((uri,), self._keep_s / 2)]
        self._looking = asyncio.create_task(self._look(wanted))
        return self._looking

    async def _look(self, uris: Iterable[str]) -> None:
        try:
            reasons = await asyncio.to_thread(lambda: {uri: self._rules.reason(uri) for uri in uris})
        finally:
            self._looking = None
        for uri, reason in reasons.items():
            _, before = self._known.pop(uri, (0.0, None))
            if reason is not None and before is None:
                self._excluded[uri] = reason
            self._known[uri] = self._now(), reason
        for uri in list(self._known)[:-_MOST_KNOWN]:
            del self._known[uri]

"""Remembers which documents are excluded; a thread reads the disk, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lsp_server.exclusion.exclusion import Exclusion
from lsp_server.exclusion.verdict import Verdict

_KEEP_SECONDS = 2.0
_MOST_KNOWN = 4096
_UNKNOWN = Verdict("the ignore files have not been checked yet", "unchecked")


@dataclass(frozen=True, slots=True)
class _Known:
    checked: float  # the time of the check
    verdict: Verdict | None
    prompts: int  # which prompts the text stays out of: 0 none, 1 those of other documents, 2 all


class Verdicts:
    """Remembers the verdict about each document; an unchecked document counts as excluded.

    A verdict holds for `keep_s` seconds; after half of them it is renewed in the background if its document is in use.
    """

    def __init__(
        self, rules: Exclusion, now: Callable[[], float] = time.monotonic, keep_s: float = _KEEP_SECONDS
    ) -> None:
        self._rules, self._now, self._keep_s = rules, now, keep_s
        self._known: dict[str, _Known] = {}  # by URI, the oldest check first
        self._excluded: dict[str, Verdict] = {}  # newly excluded since `take_excluded`, by URI
        self._ignored_are_off = False
        self._allowed: set[str] = set()  # URIs that the user allows in spite of their verdict
        self._looking: asyncio.Task[None] | None = None

    def is_excluded(self, uri: str) -> bool:
        """Whether nothing of the document may enter another document's prompt, by the last check."""
        known = self._known.get(uri)
        return known is None or known.verdict is not None

    def own(self, uri: str) -> Verdict | None:
        """The verdict that keeps the document out of its own prompts too, by the last check; None if it may enter."""
        known = self._known.get(uri)
        verdict = _UNKNOWN if known is None else known.verdict
        return verdict if self._prompts(uri, verdict) == 2 else None

    def use(self, *, ignored_are_off: bool) -> None:
        """Decide whether files that git ignores stay out of their own prompts too."""
        self._ignored_are_off = ignored_are_off
        self._decide_again()

    def allow(self, uri: str, *, allowed: bool = True) -> None:
        """Let a document into its own prompts in spite of its verdict, or no longer; never into those of others."""
        (self._allowed.add if allowed else self._allowed.discard)(uri)
        self._decide_again()

    def is_allowed(self, uri: str) -> bool:
        return uri in self._allowed

    def inherit(self, earlier: Verdicts) -> None:
        """Take over the user's decisions."""
        self._ignored_are_off, self._allowed = earlier._ignored_are_off, earlier._allowed

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

    def take_excluded(self) -> dict[str, Verdict]:
        """The documents newly found to be excluded, or from more prompts, since the last call: verdicts by URI."""
        taken, self._excluded = self._excluded, {}
        return taken

    def _is_any_older(self, uris: Iterable[str], seconds: float) -> bool:
        oldest = self._now() - seconds
        return any(uri not in self._known or self._known[uri].checked <= oldest for uri in uris)

    def _start(self, uris: Iterable[str], more: Iterable[str]) -> asyncio.Task[None]:
        wanted = [uri for uri in dict.fromkeys((*uris, *more)) if self._is_any_older((uri,), self._keep_s / 2)]
        self._looking = asyncio.create_task(self._look(wanted))
        return self._looking

    async def _look(self, uris: Iterable[str]) -> None:
        try:
            found = await asyncio.to_thread(lambda: {uri: self._rules.verdict(uri) for uri in uris})
        finally:
            self._looking = None
        for uri, verdict in found.items():
            self._decide(uri, self._now(), verdict)
        for uri in list(self._known)[:-_MOST_KNOWN]:
            del self._known[uri]

    def _decide_again(self) -> None:
        for uri, known in list(self._known.items()):
            self._decide(uri, known.checked, known.verdict)

    def _decide(self, uri: str, checked: float, verdict: Verdict | None) -> None:
        before, prompts = self._known.pop(uri, None), self._prompts(uri, verdict)
        if verdict is not None and prompts > (before.prompts if before is not None else 0):
            self._excluded[uri] = verdict
        self._known[uri] = _Known(checked, verdict, prompts)

    def _prompts(self, uri: str, verdict: Verdict | None) -> int:
        if verdict is None:
            return 0
        others_alone = uri in self._allowed or (verdict.cause == "gitignore" and not self._ignored_are_off)
        return 1 if others_alone else 2

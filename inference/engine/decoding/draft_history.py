"""Remembers each session's last suggestion for drafts, and how many of these were right."""

from __future__ import annotations

from dataclasses import dataclass, field

from inference.engine.decoding.drafters import Odds
from inference.text.lru import LRUCache
from inference.text.token_ids import TokenIds, packed
from kv_store.interface import document_of

COMPARED = 128
"""Characters before the cursor that identify the place of the last suggestion."""

BACK = 256
"""Characters before its place within which the last suggestion still matches."""

MAX_SESSIONS = 256
MAX_BYTES = 2**22
BYTES_PER_SESSION = 1024


@dataclass(frozen=True, slots=True)
class LastCompletion:
    """A suggestion, and the end of the text before it."""

    before: str = ""
    text: str = ""
    token_ids: TokenIds = field(default_factory=packed)  # that the model generated, perhaps beyond `text`

    def rest_after(self, before: str) -> str:
        """The remainder of the suggestion if `before` now precedes the cursor; empty if the text differs."""
        tail = before[-COMPARED:]
        whole = self.before + self.text
        place = whole.rfind(tail, max(0, len(self.before) - BACK - len(tail)))
        return "" if place < 0 else whole[place + len(tail) :]


@dataclass(slots=True)
class DraftHistory:
    """The draft history of one session."""

    suggested: LastCompletion = LastCompletion()
    odds_of_rest: Odds = field(default_factory=lambda: Odds(0.9))
    odds_of_repetition: Odds = field(default_factory=lambda: Odds(0.5))

    def remember(self, before: str, text: str, token_ids: TokenIds) -> None:
        """Remember the suggestion after `before`; an earlier one there stays if it begins with this one."""
        earlier = self.suggested.rest_after(before)
        if earlier.startswith(text):
            text, token_ids = earlier, self.suggested.token_ids
        self.suggested = LastCompletion(before[-COMPARED - BACK :], text, token_ids)


class DraftHistories:
    """The draft history of each session, bounded; it contains document text and never reaches the disk."""

    def __init__(self) -> None:
        self._sessions: LRUCache[str, DraftHistory] = LRUCache(MAX_SESSIONS, MAX_BYTES)

    def of(self, session: str) -> DraftHistory:
        """The draft history of a session, created if missing."""
        history = self._sessions.get(session)
        if history is None:
            history = DraftHistory()
            self._sessions.put(session, history, BYTES_PER_SESSION)
        return history

    def forget(self, session: str) -> None:
        """Drop the draft history of the session's document, for every client."""
        document = document_of(session)
        for known in [known for known in self._sessions if document_of(known) == document]:
            self._sessions.remove(known)

"""What the sessions' last suggestions said, and how good guesses from them were."""

from __future__ import annotations

from dataclasses import dataclass, field

from inference.engine.speculation import Odds
from inference.text.lru import LRUCache
from inference.text.token_ids import TokenIds, packed
from kv_store.interface import document_of

COMPARED = 128
"""Characters before the cursor by which the place of the last suggestion is found again."""

BACK = 256
"""The last suggestion is found again up to so many characters before its place."""

MAX_SESSIONS = 256
MAX_BYTES = 2**22
BYTES_PER_SESSION = 1024


@dataclass(frozen=True, slots=True)
class Suggested:
    """A suggestion, and the end of the text before it."""

    before: str = ""
    text: str = ""
    token_ids: TokenIds = field(default_factory=packed)  # that the model gave for it, and it may be for more

    def rest_after(self, before: str) -> str:
        """What it would go on with where `before` stands before the cursor now; empty where that is another text."""
        tail = before[-COMPARED:]
        whole = self.before + self.text
        place = whole.rfind(tail, max(0, len(self.before) - BACK - len(tail)))
        return "" if place < 0 else whole[place + len(tail) :]


@dataclass(slots=True)
class SessionMemory:
    """What is remembered of one session."""

    suggested: Suggested = Suggested()
    odds_of_rest: Odds = field(default_factory=lambda: Odds(0.9))
    odds_of_repetition: Odds = field(default_factory=lambda: Odds(0.5))

    def remember(self, before: str, text: str, token_ids: TokenIds) -> None:
        """This was suggested after `before`; what was suggested earlier there holds where this only begins it."""
        earlier = self.suggested.rest_after(before)
        if earlier.startswith(text):
            text, token_ids = earlier, self.suggested.token_ids
        self.suggested = Suggested(before[-COMPARED - BACK :], text, token_ids)


class Memories:
    """The memory of each session, for as many as fit; it tells of the documents' text, and is never written down."""

    def __init__(self) -> None:
        self._sessions: LRUCache[str, SessionMemory] = LRUCache(MAX_SESSIONS, MAX_BYTES)

    def of(self, session: str) -> SessionMemory:
        """What is remembered of a session; from now on what is done to it is remembered."""
        memory = self._sessions.get(session)
        if memory is None:
            memory = SessionMemory()
            self._sessions.put(session, memory, BYTES_PER_SESSION)
        return memory

    def forget(self, session: str) -> None:
        """Drop what is remembered of the session's document, in whichever client's sessions."""
        document = document_of(session)
        for known in [known for known in self._sessions if document_of(known) == document]:
            self._sessions.remove(known)

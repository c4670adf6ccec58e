"""Drafts: tokens proposed from the session's last suggestion, a text to copy or repeated text, which the model verifies
in one forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from inference.backends.model import Choice
from inference.text.token_ids import TokenIds, packed, place_of, place_of_last
from inference.text.tokenization import LRUCache
from kv_store.interface import SessionKey

DRAFT_COST = 0.2
"""Cost of one more token in a short forward, relative to a forward of one: 0.05 to 0.2 for the CPU kernel."""

MOST_DRAFTED = 15
LONGEST_RUN, SHORTEST_RUN = 4, 2  # trailing tokens to find earlier in the text


class Odds:
    """Estimates, from earlier drafts, the probability that a draft token is right if those before it are.

    Past results fade with every forward, so that a kind of draft that failed is tried again later.
    """

    FADING = 0.98
    WEIGHT = 2.0  # of the initial probability, in draft tokens

    def __init__(self, probability: float) -> None:
        self._assumed = probability
        self._right = self._wrong = 0.0

    @property
    def probability(self) -> float:
        guesses = self._right + self._wrong + self.WEIGHT
        return (self._right + self.WEIGHT * self._assumed) / guesses

    @property
    def worthwhile(self) -> int:
        """Most tokens worth drafting: up to the last one whose odds, with all before it right, cover its cost."""
        return min(MOST_DRAFTED, int(math.log(DRAFT_COST) / math.log(self.probability)))

    def note(self, drafted: int, right: int) -> None:
        """Record a forward that verified `drafted` tokens, 0 or more, of which the first `right` were right."""
        self._right = self._right * self.FADING + right
        self._wrong = self._wrong * self.FADING + (right < drafted)


GUESSED = 8
"""Tokens that are drafted where a copy may go on, until two of them were right."""

_NEAR = 64  # tokens behind a difference within which a single token shows where the copy goes on


@dataclass(slots=True)
class Copy:
    """Follows a text that is copied with changes: what the copy goes on with, if it does as it did.

    It begins at the first token. Behind a difference the place is found again: where the last tokens stand, the longest
    run first; at a line's end, else, at the next line, or at the same one if it differed from its first token on; else
    one token further, as if one had been replaced.
    """

    _ids: TokenIds
    _ends_line: Callable[[int], bool]
    _at: int = 0
    _difference: int = 0  # the place of the first token that was not copied
    _right: int = SHORTEST_RUN  # tokens in a row that were copied
    _written: TokenIds = field(default_factory=packed)  # the last ones

    @property
    def is_sure(self) -> bool:
        """Whether enough of the last tokens were copied."""
        return self._right >= SHORTEST_RUN

    def next(self, most: int) -> TokenIds:
        """At most so many tokens that come next in the copied text."""
        return self._ids[self._at : self._at + most]

    def take(self, token_ids: TokenIds) -> None:
        """Follow the tokens that were written."""
        for token_id in token_ids:
            self._written = (self._written + packed([token_id]))[-LONGEST_RUN:]
            if self._ids[self._at : self._at + 1] == packed([token_id]):
                self._at += 1
                self._right += 1
                continue
            if self.is_sure:
                self._difference = self._at
            self._right = 0
            self._at = self._place(token_id)

    def _place(self, last: int) -> int:
        for length in range(len(self._written), int(self._ends_line(last)), -1):
            end = len(self._ids) if length > 1 else self._difference + _NEAR
            place = place_of(self._written[-length:], self._ids[:end], self._difference)
            if place >= 0:
                return place + length
        if self._ends_line(last) and not self._begins_line(self._difference):
            return next(filter(self._begins_line, range(self._difference, len(self._ids))), len(self._ids))
        return self._difference + (not self._ends_line(last))

    def _begins_line(self, place: int) -> bool:
        return place == 0 or self._ends_line(self._ids[place - 1])


@dataclass(slots=True)
class Drafter:
    """Drafts for one text: from the session's last suggestion, a text to copy, or an earlier place in the text.

    The last kind is prompt lookup: the tokens that followed an earlier occurrence of the last tokens.
    """

    _ids: TokenIds  # before the text; the drafter takes ownership of them
    _rest: str  # of the last suggestion
    _encode: Callable[[str], TokenIds]
    _ends: Callable[[int], bool]  # whether a token ends the text: a draft stops before it
    _of_rest: Odds
    _of_repetition: Odds
    _copy: Copy | None = None
    _of_copy: Odds = field(default_factory=lambda: Odds(0.9))
    _drafted: tuple[Odds, int] = field(init=False)

    def __post_init__(self) -> None:
        self._drafted = self._of_repetition, 0

    def draft(self, text: str, room: int) -> TokenIds:
        """A draft of at most `room` tokens after the generated `text`."""
        if self._rest.startswith(text) and len(self._rest) > len(text):
            odds, guessed = self._of_rest, self._encode(self._rest[len(text) :])
        elif self._copy is not None and (copied := self._copy.next(MOST_DRAFTED)):
            odds, guessed = (self._of_copy, copied) if self._copy.is_sure else (Odds(0.9), copied[:GUESSED])
        else:
            odds, guessed = self._of_repetition, self._after_the_last_run()
        most = max(0, min(room, odds.worthwhile))
        draft = packed(takewhile(lambda token_id: not self._ends(token_id), guessed[:most]))
        self._drafted = odds, len(draft)
        return draft

    def verified(self, token_ids: TokenIds, right: int) -> None:
        """Record the tokens that the forward has settled, and the number of draft tokens among them."""
        odds, drafted = self._drafted
        odds.note(drafted, right)
        self._ids.extend(token_ids)
        if self._copy is not None:
            self._copy.take(token_ids)

    def _after_the_last_run(self) -> TokenIds:
        """The tokens after an earlier occurrence of the last tokens; prefers the longer run, then the later place."""
        for length in range(min(LONGEST_RUN, len(self._ids) - 1), SHORTEST_RUN - 1, -1):
            place = place_of_last(self._ids[-length:], self._ids)
            if place >= 0:
                return self._ids[place + length : place + length + MOST_DRAFTED]
        return packed()


def agreeing(draft: Sequence[int], choices: Sequence[Choice]) -> int:
    """Number of leading draft tokens that match the model's choices."""
    right = 0
    while right < len(draft) and draft[right] == choices[right].token_id:
        right += 1
    return right


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
    odds_of_copy: Odds = field(default_factory=lambda: Odds(0.9))

    def remember(self, before: str, text: str, token_ids: TokenIds) -> None:
        """Remember the suggestion after `before`; an earlier one there stays if it begins with this one."""
        earlier = self.suggested.rest_after(before)
        if earlier.startswith(text):
            text, token_ids = earlier, self.suggested.token_ids
        self.suggested = LastCompletion(before[-COMPARED - BACK :], text, token_ids)


class DraftHistories:
    """The draft history of each session, bounded; it contains document text and never reaches the disk."""

    def __init__(self) -> None:
        self._sessions: LRUCache[SessionKey, DraftHistory] = LRUCache(MAX_SESSIONS, MAX_BYTES)

    def of(self, session: SessionKey) -> DraftHistory:
        """The draft history of a session, created if missing."""
        history = self._sessions.get(session)
        if history is None:
            history = DraftHistory()
            self._sessions.put(session, history, BYTES_PER_SESSION)
        return history

    def sessions(self) -> Iterable[SessionKey]:
        """The sessions that have a history."""
        return self._sessions

    def forget(self, document: str) -> None:
        """Drop the draft histories of the document, of every client."""
        self._sessions.remove_all(lambda session: session.document == document)

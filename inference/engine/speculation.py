"""Guesses at what the model will say, to be verified in one forward: they change what a text costs, never the text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile

from inference.backends.model import Choice
from inference.text.token_ids import TokenIds, packed, place_of_last

DRAFT_COST = 0.2
"""What a token more costs in a forward of few, as a share of a forward of one: 0.05 to 0.2 for the CPU kernel."""

MOST_DRAFTED = 15
LONGEST_RUN, SHORTEST_RUN = 4, 2  # tokens at the end that are looked for earlier in the text


class Odds:
    """How probable it is that a guessed token is right where those before it are, by what came of earlier guesses.

    Experience fades with every forward, so that a kind of guess that failed is tried again after a while.
    """

    FADING = 0.98
    WEIGHT = 2.0  # of the probability that is assumed at first, in guesses

    def __init__(self, probability: float) -> None:
        self._assumed = probability
        self._right = self._wrong = 0.0

    @property
    def probability(self) -> float:
        guesses = self._right + self._wrong + self.WEIGHT
        return (self._right + self.WEIGHT * self._assumed) / guesses

    @property
    def worthwhile(self) -> int:
        """How many tokens are worth guessing at: the last one's chance pays what it costs, and it needs all before."""
        return min(MOST_DRAFTED, int(math.log(DRAFT_COST) / math.log(self.probability)))

    def note(self, drafted: int, right: int) -> None:
        """A forward has verified `drafted` guesses, 0 or more, of which the first `right` are right."""
        self._right = self._right * self.FADING + right
        self._wrong = self._wrong * self.FADING + (right < drafted)


class Drafter:
    """The guesses for one text: first that it goes on as the last suggestion did, then as an earlier place in the text.

    The second kind is prompt lookup: where the last tokens have stood before, what followed them there.
    """

    def __init__(
        self,
        seen: TokenIds,
        rest: str,
        encode: Callable[[str], TokenIds],
        ends: Callable[[int], bool],
        odds_of_rest: Odds,
        odds_of_repetition: Odds,
    ) -> None:
        """`seen` are the tokens that the text goes on from, `rest` is what the last suggestion would go on with.

        Nothing is guessed from a token on that `ends` the text. `seen` is the drafter's own from now on.
        """
        self._ids = seen
        self._rest = rest
        self._encode = encode
        self._ends = ends
        self._of_rest = odds_of_rest
        self._of_repetition = odds_of_repetition
        self._drafted: tuple[Odds, int] = (odds_of_repetition, 0)

    def draft(self, text: str, room: int) -> TokenIds:
        """At most `room` tokens that may follow, where `text` has been generated."""
        if self._rest.startswith(text) and len(self._rest) > len(text):
            odds, guessed = self._of_rest, self._encode(self._rest[len(text) :])
        else:
            odds, guessed = self._of_repetition, self._after_the_last_run()
        most = max(0, min(room, odds.worthwhile))
        draft = packed(takewhile(lambda token_id: not self._ends(token_id), guessed[:most]))
        self._drafted = odds, len(draft)
        return draft

    def verified(self, token_ids: TokenIds, right: int) -> None:
        """Note the tokens that the forward has settled, and how many of those guessed are among them."""
        odds, drafted = self._drafted
        odds.note(drafted, right)
        self._ids.extend(token_ids)

    def _after_the_last_run(self) -> TokenIds:
        """What followed the last tokens where they stood before, the longer run first, the later place first."""
        for length in range(min(LONGEST_RUN, len(self._ids) - 1), SHORTEST_RUN - 1, -1):
            place = place_of_last(self._ids[-length:], self._ids)
            if place >= 0:
                return self._ids[place + length : place + length + MOST_DRAFTED]
        return packed()


def agreeing(draft: Sequence[int], choices: Sequence[Choice]) -> int:
    """How many guesses at the beginning of the draft are what the model chooses."""
    right = 0
    while right < len(draft) and draft[right] == choices[right].token_id:
        right += 1
    return right

"""Shortens a completion to the beginning that is worth most: likely to be right, and long enough to pay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lsp_server.filters.ends import is_within_token
from protocol.messages import Alternative, Completion, TokenLogprob

SHORT = 5
"""Characters of a suggestion that hardly pays for the look at it, white space at both ends left out."""

_LEAST_OF_SHORT, _LEAST_OF_LONG = 0.6, 0.1  # probability of a whole suggestion that is worth an interruption

LEAST_PROBABILITY = 0.02
"""The core stops decoding a text that is less probable than this: its end is hardly ever worth showing."""


@dataclass(frozen=True, slots=True)
class Likely:
    """A beginning of a completion, and how likely it is, if known.

    Attributes:
        percent: the mean probability of its tokens (geometric).
        is_cut: whether the model would have gone on.
        probability: of all its tokens, as a share.
    """

    text: str
    percent: float | None
    is_cut: bool = False
    probability: float | None = None

    def interrupts(self, shown: str) -> bool:
        """Whether what is shown of it is worth an interruption: a few characters only if they are nearly certain."""
        return self.probability is None or self.probability >= _least(shown)


def _least(text: str) -> float:
    return _LEAST_OF_SHORT if len(text.strip()) <= SHORT else _LEAST_OF_LONG


def whole(completion: Completion) -> Likely:
    """All of the completion, with the mean probability of its tokens."""
    logprob = completion.mean_logprob
    percent = None if logprob is None else 100 * math.exp(logprob)
    return Likely(without_cut_end(completion), percent, completion.finish_reason == "length")


def without_cut_end(found: Completion | Alternative) -> str:
    """The text without what the token limit has cut, if it has: the last line, or of a single line the last word."""
    text = found.text
    if found.finish_reason != "length":
        return text
    lines = text.rpartition("\n")[0]
    if lines.strip():
        return lines
    return text[: next((end for end in range(len(text), 0, -1) if not _goes_on(text, end)), 0)]


def _goes_on(text: str, end: int) -> bool:
    """Whether a word or number at `end` may be the beginning of a longer one."""
    return is_within_token(text[:end] + "0", end)


def likely_part(completion: Completion) -> Likely:
    """The completion's beginning with the highest expected number of characters that are right.

    This is the number of its characters times its probability, the product of its tokens'. White space counts as one
    character: editors indent by themselves. The first line ends where a token ends outside of a word or number; a block
    ends with a line. If the tokens' probabilities are not known, it is all of the completion.
    """
    best, most = whole(completion), 0.0
    if best.percent is None:
        return best
    text, is_cut = best.text, best.is_cut
    for end in _ends(completion.tokens, text):
        probability = math.exp(end.logprob)
        if (expected := end.characters * probability) >= most and end.characters:
            percent, ends_early = 100 * math.exp(end.logprob / end.tokens), is_cut or end.place < len(text)
            best, most = Likely(text[: end.place], percent, ends_early, probability), expected
    return best


@dataclass(frozen=True, slots=True)
class _End:
    """Where a text may end: the characters that count before it, its tokens, the logarithm of their probability."""

    place: int
    characters: int
    tokens: int
    logprob: float


def _ends(tokens: tuple[TokenLogprob, ...], text: str) -> Iterator[_End]:
    place, logprob, count = 0, 0.0, 0
    characters, is_space, in_first_line = 0, False, True
    for count, token in enumerate(tokens, start=1):
        logprob += token.logprob
        for character in text[place : place + len(token.text)]:
            if character == "\n" and characters:
                yield _End(place, characters, count, logprob)
                in_first_line = False
            if not character.isspace():
                characters += 2 if is_space and characters else 1
            is_space = character.isspace()
            place += 1
        if place < len(text) and in_first_line and not is_within_token(text, place):
            yield _End(place, characters, count, logprob)
    if count:
        yield _End(len(text), characters, count, logprob)

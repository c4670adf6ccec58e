"""Shortens a completion to the beginning that is worth most: likely to be right, and long enough to pay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lsp_server.filters.block import without_cut_line
from protocol.messages import Completion, TokenLogprob

LEAST_PROBABILITY = 0.02
"""The core stops decoding a text that is less probable than this: its end is hardly ever worth showing."""


@dataclass(frozen=True, slots=True)
class Likely:
    """A beginning of a completion, and the mean probability of its tokens (geometric), in percent, if known."""

    text: str
    percent: float | None


def whole(completion: Completion) -> Likely:
    """All of the completion, with the mean probability of its tokens."""
    logprob = completion.mean_logprob
    return Likely(without_cut_line(completion), None if logprob is None else 100 * math.exp(logprob))


def likely_part(completion: Completion) -> Likely:
    """The completion's beginning with the highest expected number of characters that are right.

    This is the number of its characters times its probability, the product of its tokens'. White space counts as one
    character: editors indent by themselves. The first line ends where a token ends outside of a word; a block ends with
    a line. If the tokens' probabilities are not known, it is all of the completion.
    """
    best, most = whole(completion), 0.0
    if best.percent is None:
        return best
    text = best.text
    for end in _ends(completion.tokens, text):
        expected = end.characters * math.exp(end.logprob)
        if expected >= most and end.characters:
            best, most = Likely(text[: end.place], 100 * math.exp(end.logprob / end.tokens)), expected
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
        if place < len(text) and in_first_line and not _is_within_word(text, place):
            yield _End(place, characters, count, logprob)
    if count:
        yield _End(len(text), characters, count, logprob)


def _is_within_word(text: str, place: int) -> bool:
    return place > 0 and _is_of_word(text[place - 1]) and _is_of_word(text[place])


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"

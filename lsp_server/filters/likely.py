"""Shortens a completion to the beginning that is worth most: likely to be right, and long enough to pay."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from protocol.messages import Completion, TokenLogprob

_INSIDE_WORD = re.compile(r"(?<=\w)\w")
_WHITE_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Likely:
    """A beginning of a completion, and the mean probability of its tokens (geometric), in percent, if known."""

    text: str
    percent: float | None


def whole(completion: Completion, text: str) -> Likely:
    """All of the completion's `text`, with the mean probability of all its tokens."""
    logprob = completion.mean_logprob
    return Likely(text, None if logprob is None else 100 * math.exp(logprob))


def likely_part(completion: Completion, text: str) -> Likely:
    """The beginning of the completion's `text` with the highest expected number of characters that are right.

    This is the number of its characters times its probability, the product of its tokens'. It ends where a token ends
    outside of a word, or with the text. White space counts as one character: editors indent by themselves. Without the
    tokens' probabilities it is all of the text.
    """
    if not completion.tokens:
        return whole(completion, text)
    best, most = whole(completion, text), -1.0
    for end, tokens, logprob in _ends(completion.tokens, text):
        expected = len(_WHITE_SPACE.sub(" ", text[:end].strip())) * math.exp(logprob)
        if expected >= most:
            best, most = Likely(text[:end], 100 * math.exp(logprob / tokens)), expected
    return best


def _ends(tokens: tuple[TokenLogprob, ...], text: str) -> Iterator[tuple[int, int, float]]:
    """Where `text` may end: characters, tokens, and the logarithm of their probability."""
    end, logprob = 0, 0.0
    for count, token in enumerate(tokens, start=1):
        end, logprob = end + len(token.text), logprob + token.logprob
        if end >= len(text):
            yield len(text), count, logprob
            return
        if text[:end].strip() and not _INSIDE_WORD.match(text, end):
            yield end, count, logprob

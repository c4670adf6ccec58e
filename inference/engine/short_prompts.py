"""Decides which requests are answered from the short prompt, since the whole one is not resident and takes too long."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from statistics import median

from msgspec import structs

from inference.engine.request import Request
from inference.text.prompts import CountTokens, TokenizedPrompt, short_prompt
from inference.text.token_ids import TokenIds
from kv_store.interface import SessionKey
from protocol.messages import SLACK_TOKENS, CompletionRequest

LEAST_TOKENS = 32
"""A prefill of fewer tokens tells too little of the speed of long ones."""
_REMEMBERED = 8

Tokenize = Callable[[CompletionRequest], TokenizedPrompt]
Missing = Callable[[SessionKey, TokenIds], int]
"""How many tokens of a session's prompt are not resident."""


class PrefillSpeed:
    """The speed of the last prefills; their median, since single ones have waited for other programs."""

    def __init__(self, *, assumed_fast: bool) -> None:
        """`assumed_fast` counts before the first one is measured."""
        self._assumed_s = 0.0 if assumed_fast else math.inf
        self._seconds_per_token = deque[float](maxlen=_REMEMBERED)

    def note(self, tokens: int, seconds: float) -> None:
        if tokens >= LEAST_TOKENS:
            self._seconds_per_token.append(seconds / tokens)

    def seconds(self, tokens: int) -> float:
        """How long the prefill of so many tokens probably takes."""
        return tokens * median(self._seconds_per_token or [self._assumed_s])


def choose_prompt(
    request: Request, tokenize: Tokenize, count_tokens: CountTokens, missing: Missing, speed: PrefillSpeed
) -> TokenizedPrompt:
    """The request's prompt as tokens; if that is the short one, it and its session replace those of the request.

    A short prompt that is resident goes on until the whole one needs no more tokens than it: so no key waits for the
    change from one to the other.
    """
    spec = request.spec
    whole = tokenize(spec)
    if not (spec.max_prefill_ms and spec.max_tokens and spec.reuse) or request.session.is_short:
        return whole
    left = missing(request.session, whole.token_ids)
    if left <= SLACK_TOKENS:
        return whole
    nearer = structs.replace(spec, prompt=short_prompt(spec.prompt, count_tokens))
    short = tokenize(nearer)
    short_left = missing(request.session.short, short.token_ids)
    is_resident = 2 * short_left < len(short.token_ids)
    takes_long = speed.seconds(left - short_left) * 1e3 > spec.max_prefill_ms
    if left < short_left + request.cost.block_tokens or not (is_resident or takes_long):
        return whole
    request.spec, request.session = nearer, request.session.short
    return short

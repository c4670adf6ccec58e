"""Classifies requests: hot if only typed tokens were recomputed, cold if nothing was reused, else warm."""

from __future__ import annotations

import math
from typing import Literal

from protocol.messages import Usage

Heat = Literal["hot", "warm", "cold"]

# Tokens that a hot request may recompute beyond the inserted ones: typing retokenizes the token before the cursor,
# and a backspace the two before it.
SLACK_TOKENS = 3
# Of source code with the vocabularies of current code models; used without a measurement.
_CHARS_PER_TOKEN = 3.2


def heat(usage: Usage, inserted_tokens: int) -> Heat:
    """The heat of a request after an edit that inserted `inserted_tokens` (0 for a deletion or a move).

    An engine that keeps whole blocks recomputes the rest of the last one with every request.
    """
    if usage.recomputed_tokens < inserted_tokens + SLACK_TOKENS + usage.block_tokens:
        return "hot"
    return "cold" if usage.recomputed_tokens >= usage.prompt_tokens else "warm"


def estimate_tokens(chars: int, chars_per_token: float = 0.0) -> int:
    """Estimated number of tokens of a text, without a tokenizer; `chars_per_token` is the core's, 0 if unknown."""
    return math.ceil(chars / (chars_per_token or _CHARS_PER_TOKEN))

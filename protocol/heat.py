"""Classifies requests: hot if only typed tokens were recomputed, cold if nothing was reused, else warm."""

from __future__ import annotations

import math
from typing import Literal

Heat = Literal["hot", "warm", "cold"]

# Tokens that a hot request may recompute beyond the inserted ones: typing retokenizes the token before the cursor,
# and a backspace the two before it.
SLACK_TOKENS = 3
# Of source code with the vocabularies of current code models; used without a measurement.
_CHARS_PER_TOKEN = 3.2


def heat(recomputed_tokens: int, prompt_tokens: int, inserted_tokens: int) -> Heat:
    """The heat of a request after an edit that inserted `inserted_tokens` (0 for a deletion or a move)."""
    if recomputed_tokens <= inserted_tokens + SLACK_TOKENS:
        return "hot"
    return "cold" if recomputed_tokens >= prompt_tokens else "warm"


def estimate_tokens(text: str, chars_per_token: float = 0.0) -> int:
    """Estimated number of tokens of `text` without a tokenizer; `chars_per_token` is the core's, 0 if unknown."""
    return math.ceil(len(text) / (chars_per_token or _CHARS_PER_TOKEN))

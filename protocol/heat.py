"""How warm a request was: hot when it recomputed only what was typed, cold when it reused nothing, warm in between."""

from __future__ import annotations

import math
from typing import Literal

Heat = Literal["hot", "warm", "cold"]

# Tokens that a hot request may recompute beyond the inserted ones: typing changes the split of the token before
# the cursor, and a backspace that of the two before it.
SLACK_TOKENS = 3
# Of source code, by the vocabularies of today's code models, where nobody measured.
_CHARS_PER_TOKEN = 3.2


def heat(recomputed_tokens: int, prompt_tokens: int, inserted_tokens: int) -> Heat:
    """How warm a request was that follows an edit which inserted `inserted_tokens` (0 for a deletion or a move)."""
    if recomputed_tokens <= inserted_tokens + SLACK_TOKENS:
        return "hot"
    return "cold" if recomputed_tokens >= prompt_tokens else "warm"


def estimate_tokens(text: str, chars_per_token: float = 0.0) -> int:
    """About how many tokens `text` has, for want of a tokenizer; `chars_per_token` is the core's, 0 if not known."""
    return math.ceil(len(text) / (chars_per_token or _CHARS_PER_TOKEN))

"""The input of a forward: chunks, each of consecutive tokens of one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference.text.healing_vocabulary import AllowedIds
from kv_store.interface import Workspace

SHORT_TOKENS = 16
"""Chunks of up to this many tokens are short: the CPU kernel takes several of them in one call."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence; chunks of several sequences may share a forward.

    Attributes:
        token_ids: at least one token.
        start: position of the first token. The workspace holds the KV of [0, start); the forward adds that of these.
        workspace: the sequence's; distinct for every chunk of a forward.
        wanted: number of trailing positions whose next token is returned, 0 to len(token_ids).
        allowed: token ids that the choice is limited to; None for all. If set, `wanted` is at most 1.
    """

    token_ids: Sequence[int]
    start: int
    workspace: Workspace
    wanted: int = 0
    allowed: AllowedIds | None = None

    @property
    def stop(self) -> int:
        """The position after the last token."""
        return self.start + len(self.token_ids)

    @property
    def is_short(self) -> bool:
        return len(self.token_ids) <= SHORT_TOKENS

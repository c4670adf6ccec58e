"""What goes through the model in one forward: chunks, each some consecutive tokens of one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference.text.healing_vocabulary import AllowedIds
from kv_store.interface import Workspace

SHORT_TOKENS = 16
"""Chunks of up to so many tokens are short: the CPU kernel takes several in a call."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence; several sequences' chunks may share a forward.

    Attributes:
        token_ids: at least one token.
        start: the position of the first. The workspace holds the KV of [0, start), and gets that of these tokens.
        workspace: the sequence's own. No two chunks of a forward have the same one.
        wanted: how many of the last tokens the greedy choice of what follows is asked for, 0 to len(token_ids).
        allowed: the tokens that the choice is among, where not all are; with it, `wanted` is at most 1.
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

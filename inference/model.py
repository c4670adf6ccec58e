"""What the engine asks of a model, and the one that answers without computing."""

# ruff: noqa: ARG002 -- a dry model needs no arguments

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.healing_vocabulary import AllowedIds
from kv_store.interface import Workspace


@dataclass(frozen=True, slots=True)
class Choice:
    """The most probable next token and the natural logarithm of its probability (among the tokens allowed)."""

    token_id: int
    logprob: float


class Model(Protocol):
    """A causal language model on a workspace. Every call is one forward.

    A forward at `start` needs the KV of tokens [0, start) in the workspace, and writes that of its own tokens.
    """

    @property
    def workspace(self) -> Workspace: ...

    @property
    def context_tokens(self) -> int:
        """How many tokens the workspace holds."""
        ...

    @property
    def alignment(self) -> int:
        """What is reused is cut to a multiple of so many tokens."""
        ...

    def prefill(self, token_ids: Sequence[int], start: int) -> None:
        """Write the KV of `token_ids` at [start, start + len(token_ids))."""
        ...

    def choose_next(self, token_ids: Sequence[int], start: int, allowed: AllowedIds | None = None) -> Choice:
        """The same, and the greedy choice of what follows the last of them, among the `allowed` tokens if given."""
        ...


class DryModel:
    """Implements `Model` for counting: forwards cost nothing, and the text always ends at once.

    Where tokens are asked for that spell typed bytes, it chooses the first allowed, which spells the most of them.
    """

    alignment = 1

    def __init__(self, workspace: Workspace, context_tokens: int, end_token: int) -> None:
        self.workspace = workspace
        self.context_tokens = context_tokens
        self._end = Choice(end_token, 0.0)

    def prefill(self, token_ids: Sequence[int], start: int) -> None:
        return

    def choose_next(self, token_ids: Sequence[int], start: int, allowed: AllowedIds | None = None) -> Choice:
        return self._end if allowed is None else Choice(int(allowed[0]), 0.0)

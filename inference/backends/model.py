"""The interface between the engine and a model, and the dry model, which computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.backends.chunk import Chunk
from kv_store.interface import Workspace


@dataclass(frozen=True, slots=True)
class Choice:
    """The next token, and the natural logarithm of its probability among the tokens allowed, at temperature 1."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the most probable tokens, if requested, each with its logarithm


class Model(Protocol):
    """A causal language model; each of its sequences has its own workspace."""

    @property
    def context_tokens(self) -> int:
        """Capacity of a workspace in tokens."""
        ...

    @property
    def alignment(self) -> int:
        """Chunks begin at multiples of this many tokens; the reused part of a prompt is cut to one."""
        ...

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights in memory."""
        ...

    def new_workspace(self) -> Workspace:
        """Allocate an empty workspace; MemoryError if there is no room."""
        ...

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """One forward: write the KV of all chunks, and return the next tokens of each chunk's last `wanted` tokens.

        The choices are greedy, unless a chunk has a `draw`, and in the order of the tokens.
        """
        ...


class DryModel:
    """Implements `Model` for counting: forwards compute nothing, and every text ends at once.

    If typed bytes limit the choice, it chooses the allowed token with the highest id, usually a long one. As with
    logits, a choice among many tokens stays the choice among fewer.
    """

    alignment = 1
    weights_bytes = 0

    def __init__(self, new_workspace: Callable[[], Workspace], context_tokens: int, end_token: int) -> None:
        self._new_workspace = new_workspace
        self.context_tokens = context_tokens
        self._end = Choice(end_token, 0.0)

    def new_workspace(self) -> Workspace:
        return self._new_workspace()

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        return [
            tuple(Choice(token_id, 0.0) for token_id in chunk.forced) or (self._choose(chunk),) * chunk.wanted
            for chunk in chunks
        ]

    def _choose(self, chunk: Chunk) -> Choice:
        return self._end if chunk.allowed is None else Choice(int(chunk.allowed.max()), 0.0)

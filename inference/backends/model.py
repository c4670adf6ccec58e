"""What the engine asks of a model, and the one that answers without computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.backends.chunk import Chunk
from kv_store.interface import Workspace


@dataclass(frozen=True, slots=True)
class Choice:
    """The most probable next token and the natural logarithm of its probability (among the tokens allowed)."""

    token_id: int
    logprob: float


class Model(Protocol):
    """A causal language model; the sequences that it is at work on are in workspaces of their own."""

    @property
    def context_tokens(self) -> int:
        """How many tokens a workspace holds."""
        ...

    @property
    def alignment(self) -> int:
        """Every chunk begins at a multiple of so many tokens; what is reused of a prompt is cut to one."""
        ...

    def new_workspace(self) -> Workspace:
        """An empty workspace, with memory of its own; MemoryError where there is none left."""
        ...

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """One forward: write the KV of all chunks' tokens; for each chunk, what follows its last `wanted` tokens.

        The choices are greedy, the one after the last token comes last.
        """
        ...


class DryModel:
    """Implements `Model` for counting: forwards cost nothing, and the text always ends at once.

    Where tokens are asked for that spell typed bytes, it chooses the first allowed, which spells the most of them.
    """

    alignment = 1

    def __init__(self, new_workspace: Callable[[], Workspace], context_tokens: int, end_token: int) -> None:
        self._new_workspace = new_workspace
        self.context_tokens = context_tokens
        self._end = Choice(end_token, 0.0)

    def new_workspace(self) -> Workspace:
        return self._new_workspace()

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        return [(self._choose(chunk),) * chunk.wanted for chunk in chunks]

    def _choose(self, chunk: Chunk) -> Choice:
        return self._end if chunk.allowed is None else Choice(int(chunk.allowed[0]), 0.0)

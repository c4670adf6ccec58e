"""The interface between the engine and a model: chunks of tokens in, choices out; and the dry model, which computes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.text.token_boundaries import AllowedIds
from kv_store.interface import Workspace
from kv_store.snapshots import StateSnapshot
from protocol.messages import Sampling

SHORT_TOKENS = 16
"""Chunks of up to this many tokens are short: the CPU kernel takes several of them in one call."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Draws the token at which the cumulative probability passes `point`, in [0, 1), as `sampling` says."""

    point: float
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence; chunks of several sequences may share a forward.

    Attributes:
        token_ids: at least one token.
        start: position of the first token. The workspace holds the KV of [0, start), and is resumable there; the
            forward adds the KV of these, and a snapshot at the end if the model has recurrent layers.
        workspace: the sequence's; distinct for every chunk of a forward.
        wanted: number of trailing positions whose next token is returned, 0 to len(token_ids).
        allowed: token ids that the choice is limited to; None for all.
        draw: how the token is drawn; None chooses the most probable one.
        top: number of the most probable tokens that are returned with the choice.
        forced: one token for each wanted position; if given, these are the choices, and only their log-probabilities
            are of interest.

    With `allowed`, `draw` or `top`, `wanted` is at most 1.
    """

    token_ids: Sequence[int]
    start: int
    workspace: Workspace
    wanted: int = 0
    allowed: AllowedIds | None = None
    draw: Draw | None = None
    top: int = 0
    forced: Sequence[int] = ()

    @property
    def needs_logits(self) -> bool:
        """Whether more than the most probable token of all is requested."""
        return self.allowed is not None or self.draw is not None or self.top > 0 or len(self.forced) > 0

    @property
    def stop(self) -> int:
        """The position after the last token."""
        return self.start + len(self.token_ids)

    @property
    def is_short(self) -> bool:
        return len(self.token_ids) <= SHORT_TOKENS


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

    weights_bytes = 0

    def __init__(self, new_workspace: Callable[[], Workspace], context_tokens: int, end_token: int) -> None:
        self._new_workspace = new_workspace
        self.context_tokens = context_tokens
        self._end = Choice(end_token, 0.0)

    def new_workspace(self) -> Workspace:
        return self._new_workspace()

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        for chunk in chunks:
            if chunk.workspace.snapshots is not None:
                chunk.workspace.snapshots.drop_beyond(chunk.start)
                chunk.workspace.snapshots.put(chunk.stop, StateSnapshot(None, 1))
        return [
            tuple(Choice(token_id, 0.0) for token_id in chunk.forced) or (self._choose(chunk),) * chunk.wanted for chunk in chunks
        ]

    def _choose(self, chunk: Chunk) -> Choice:
        return self._end if chunk.allowed is None else Choice(int(chunk.allowed.max()), 0.0)

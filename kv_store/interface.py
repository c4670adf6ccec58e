"""The interface of a KV store: the longest resident prefix of some token ids, and what it costs to keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Workspace(Protocol):
    """The static buffers that the model runs on, as the store sees them.

    Positions are half-open intervals of tokens. A payload is the KV of a run of tokens, opaque to the index.
    """

    bytes_per_token: int

    def export_kv(self, start: int, stop: int) -> object:
        """A copy of the KV of tokens [start, stop), owned by the caller."""
        ...

    def import_kv(self, start: int, payload: object, count: int) -> None:
        """Write the first `count` tokens of `payload` at [start, start + count)."""
        ...


class Match(Protocol):
    """The longest resident prefix of a request; it cannot be evicted until released. Use it in a `with`."""

    @property
    def length(self) -> int:
        """How many leading tokens are resident, in any tier."""
        ...

    def load(self, workspace: Workspace, start: int = 0) -> None:
        """Write the KV of tokens [start, length) into the workspace."""
        ...

    def release(self) -> None:
        """Let the pages go; releasing twice is an error."""
        ...

    def __enter__(self) -> Match: ...

    def __exit__(self, *exc: object) -> None: ...


@dataclass(frozen=True, slots=True)
class TierStats:
    """What one tier holds."""

    name: str
    used_bytes: int
    budget_bytes: int
    tokens: int
    pages: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What the store holds and did since it was made."""

    tiers: tuple[TierStats, ...]
    hits: int
    misses: int
    evicted_tokens: int

    @property
    def used_bytes(self) -> int:
        return sum(tier.used_bytes for tier in self.tiers)

    @property
    def tokens(self) -> int:
        return sum(tier.tokens for tier in self.tiers)


class KVStore(Protocol):
    """What is resident outside the workspace. It knows token ids and owners' names, nothing of documents."""

    def match_prefix(self, token_ids: Sequence[int]) -> Match:
        """The longest resident prefix of `token_ids`, token-granular; length 0 where nothing matches."""
        ...

    def insert_prefix(self, token_ids: Sequence[int], workspace: Workspace, owner: str) -> int:
        """Make `token_ids` resident, copying from the workspace what is not resident yet; the tokens copied.

        The workspace must hold the KV of exactly these tokens at [0, len(token_ids)). Within the budget,
        older tails are evicted to make room; where pins leave too little room, fewer tokens are kept.
        """
        ...

    def pin(self, owner: str) -> None:
        """Keep what was last inserted for this owner from being evicted from the first tier it is in."""
        ...

    def unpin(self, owner: str) -> None:
        """Undo `pin`; unknown owners are no error."""
        ...

    def purge(self, owner: str) -> int:
        """Drop, from every tier, the pages that only this owner used; the tokens dropped."""
        ...

    def stats(self) -> StoreStats: ...

    def check_integrity(self) -> None:
        """Raise AssertionError, naming the page, where accounting, references or budgets do not add up."""
        ...

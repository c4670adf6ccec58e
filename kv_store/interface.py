"""The interface of a KV store: the longest resident prefix of some token ids, and what it costs to keep it.

One thread, the model's, uses a store and its matches; nothing here takes a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Workspace(Protocol):
    """The static buffers that the model runs on, as the store sees them.

    Positions are half-open intervals of tokens. A payload is the KV of a run of tokens, opaque to the index.
    Which token ids the workspace holds is for its user, the engine, to know.
    """

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token, over all layers."""
        ...

    def export_kv(self, start: int, stop: int) -> object:
        """A copy of the KV of tokens [start, stop), owned by the caller."""
        ...

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        """Write tokens [skip, skip + count) of `payload` at [start, start + count)."""
        ...


class Match(Protocol):
    """The longest resident prefix of a request; it cannot be evicted until released. Use it in a `with`."""

    @property
    def length(self) -> int:
        """How many leading tokens are resident, in any tier."""
        ...

    def load(self, workspace: Workspace, start: int = 0) -> int:
        """Write the KV of tokens [start, length) into the workspace, which holds [0, start) already.

        Returns how many leading tokens the workspace holds now: `length`, or less (never less than `start`) where a
        page turned out to be unreadable on disk or was purged since; `length` shrinks with it. What was loaded
        moves up to the first tier, within its budget.
        """
        ...

    def release(self) -> None:
        """Let the pages go; raises ReleasedMatchError the second time."""
        ...

    def __enter__(self) -> Match: ...

    def __exit__(self, *exc: object) -> None: ...


def document_of(owner: str) -> str:
    """The document in an owner's name, `client/document`; the whole name where it names no client.

    Client names end with a run of the client, and the text that is kept is the document's: whatever finds sessions or
    pages by document compares these. `*/document`, for a document of all clients, is the same document.
    """
    return owner.partition("/")[2] or owner


@dataclass(frozen=True, slots=True)
class TierStats:
    """What one tier holds. A page that is also saved on disk counts in both tiers."""

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
    """Tokens that left the last tier under pressure: gone, not merely demoted."""
    refused: tuple[str, ...] = ()
    """Why saved files were refused, each naming its file; the newest hundred."""

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
        """Make `token_ids` resident, copying from the workspace what is not; how many tokens longer the prefix got.

        The workspace must hold the KV of exactly these tokens at [0, len(token_ids)). Within the budget,
        older tails are evicted to make room; where pins leave too little room, fewer tokens are kept.
        """
        ...

    def pin(self, owner: str) -> None:
        """Keep what was last inserted for this owner, now and from now on, from leaving the tier it is in."""
        ...

    def unpin(self, owner: str) -> None:
        """Undo `pin`; unknown owners are no error."""
        ...

    def purge(self, owner: str) -> int:
        """Drop, from every tier, what only the owner's document used, its pins and its name; the tokens dropped.

        A document is the same whichever client it was inserted for: see `document_of`.

        Dropping goes by whole pages, so another document may lose the end of a page that it shared. A prompt that held
        text of several documents belongs to the owner named when it was inserted: purge each such owner.
        """
        ...

    def save(self, seconds: float | None = None) -> bool:
        """Write what is resident to the disk tier, within its budget, the most recently used first.

        Goes on for about so many seconds (None: as long as it takes). True where nothing is left to be written; another
        call goes on with the rest.
        """
        ...

    def stats(self) -> StoreStats: ...

    def check_integrity(self) -> None:
        """Raise AssertionError, naming the page, where accounting, references or budgets do not add up."""
        ...

    def close(self) -> None:
        """Give back what the tiers hold of the system (locks on folders); what is in memory alone is lost."""
        ...

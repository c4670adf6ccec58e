"""The interface of a KV store: finds, keeps and evicts the longest resident prefixes of token ids.

Only the model thread uses a store and its matches; nothing here takes a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Workspace(Protocol):
    """The static buffers that the model runs on, as the store uses them.

    Positions are half-open intervals of tokens. A payload is the KV of a run of tokens, opaque to the index.
    The engine, not the workspace, knows the token ids of its KV.
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
    """The longest resident prefix of a request, protected from eviction until released. Use it in a `with`."""

    @property
    def length(self) -> int:
        """Number of leading tokens that are resident, in any tier."""
        ...

    def load(self, workspace: Workspace, start: int = 0) -> int:
        """Write the KV of tokens [start, length) into the workspace, which holds [0, start) already.

        Returns the number of leading tokens now in the workspace: `length`, or less (at least `start`) if a page is
        unreadable on disk or was purged since; `length` shrinks with it. Loaded pages move up to the first tier,
        within its budget.
        """
        ...

    def release(self) -> None:
        """End the protection of the pages; raises ReleasedMatchError the second time."""
        ...

    def __enter__(self) -> Match: ...

    def __exit__(self, *exc: object) -> None: ...


def document_of(session: str) -> str:
    """The document in an session's name, `client/document`; the whole name if it has no client.

    A client's name changes with every run of the client, but kept text belongs to the document: compare documents to
    find sessions and pages. `*/document`, which stands for all clients, is the same document.
    """
    return session.partition("/")[2] or session


@dataclass(frozen=True, slots=True)
class TierStats:
    """The content of one tier. A page that is also saved on disk counts in both tiers."""

    name: str
    used_bytes: int
    budget_bytes: int
    tokens: int
    pages: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The content of the store, and its counters since its creation."""

    tiers: tuple[TierStats, ...]
    evicted_tokens: int
    """Tokens evicted from the last tier: dropped, not demoted."""
    refused: tuple[str, ...] = ()
    """Reasons for refused saved files, each naming its file; the newest hundred."""
    workspaces: int = 0
    workspaces_bytes: int = 0
    """Set by the engine, which owns the workspaces; of all of them."""

    @property
    def used_bytes(self) -> int:
        return sum(tier.used_bytes for tier in self.tiers)

    @property
    def tokens(self) -> int:
        return sum(tier.tokens for tier in self.tiers)


@dataclass(frozen=True, slots=True)
class SessionStats:
    """The resident tokens of a session's last prompt, by tier in the order of `StoreStats.tiers`.

    A page counts in every tier that has a copy of it, and for every session that uses it.
    """

    session: str
    tokens: tuple[int, ...]


class KVStore(Protocol):
    """All KV outside of workspaces. The store knows token ids and sessions' names, but no text."""

    def match_prefix(self, token_ids: Sequence[int], namespace: str = "") -> Match:
        """The longest resident prefix of `token_ids`, token-granular; length 0 if nothing matches.

        Namespaces share nothing. The documents of all but the empty one are named `namespace/...`.
        """
        ...

    def insert_prefix(self, token_ids: Sequence[int], workspace: Workspace, session: str, namespace: str = "") -> int:
        """Make `token_ids` resident in a namespace; returns how many tokens' KV was missing and copied.

        The workspace must hold the KV of exactly these tokens at [0, len(token_ids)). Within the budget,
        older tails are evicted to make room; if pins leave too little room, fewer tokens are kept.
        """
        ...

    def pin(self, session: str) -> None:
        """Keep this session's last inserted prefix, and those inserted later, in their tier."""
        ...

    def unpin(self, session: str) -> None:
        """Undo `pin`; ignores unknown sessions."""
        ...

    def purge(self, session: str) -> int:
        """Drop the pages of the session's document alone, its pins and its name, in all tiers; the tokens dropped.

        The document counts for all clients: see `document_of`.

        Only whole pages are dropped, so another document may lose the end of a page that it shared. A prompt with text
        of several documents belongs to the session that inserted it: purge each such session.
        """
        ...

    def save(self, seconds: float | None = None) -> bool:
        """Write resident pages to the disk tier, within its budget, the most recently used first.

        Stops after about `seconds` (None: when all is written). Returns True if nothing is left to write; another call
        continues with the rest.
        """
        ...

    def clear(self, *, disk: bool) -> None:
        """Drop all pages from memory, and with `disk` from every tier. Pages that are only in memory are lost."""
        ...

    def stats(self) -> StoreStats: ...

    def session_stats(self, most: int) -> list[SessionStats]:
        """The residency of at most so many sessions, the latest first."""
        ...

    def check_integrity(self) -> None:
        """Raise AssertionError, naming the page, if accounting, references or budgets are inconsistent."""
        ...

    def close(self) -> None:
        """Release system resources of the tiers, such as folder locks; unsaved pages are lost."""
        ...

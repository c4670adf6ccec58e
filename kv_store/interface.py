"""The interface of a store: workspaces, keys of sessions, statistics and exceptions; imports no torch.

StoreError
├── ReleasedMatchError  a match was used after its release
├── BadFileError        a saved file is truncated, corrupt, too large or of another model
└── FolderInUseError    another process keeps its saved pages in this folder
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from kv_store.snapshots import Snapshots


class StoreError(Exception):
    """Base of the store's exceptions."""


class ReleasedMatchError(StoreError):
    """A match was used, or released again, after its release."""


class BadFileError(StoreError):
    """A saved file is unusable; the message names the file and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FolderInUseError(StoreError):
    """Another live process holds the folder of saved pages."""


class Workspace(Protocol):
    """The static buffers that the model runs on, as the store uses them.

    Positions are half-open intervals of tokens. A payload is the KV of a run of tokens, opaque to the index.
    The engine, not the workspace, knows the token ids of its KV.
    """

    snapshots: Snapshots | None = None
    """Of a model with recurrent layers, whose forwards can go on nowhere else; None if KV is all that a model keeps."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token, over all layers."""
        ...

    def resumable(self, length: int) -> int:
        """The deepest position up to `length` where a forward can go on."""
        return length if self.snapshots is None else self.snapshots.deepest(length)

    def export_kv(self, start: int, stop: int) -> object:
        """A copy of the KV of tokens [start, stop), owned by the caller."""
        ...

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        """Write tokens [skip, skip + count) of `payload` at [start, start + count)."""
        ...


class SessionKey(NamedTuple):
    """A document of one client, or a client's unrelated prompts.

    A client's name changes with every run of the client, but kept text belongs to the document: compare documents to
    find sessions and pages.
    """

    client: str
    document: str
    """Its name in the store and on disk, which no other user's document has: `user/document` with users."""
    user: str = ""
    is_anonymous: bool = False  # of unrelated prompts, which are distinguished by their text
    is_short: bool = False  # of short prompts, which have a workspace of their own

    @property
    def short(self) -> SessionKey:
        """The key of the document's short prompts."""
        return self._replace(is_short=True)

    def __str__(self) -> str:
        """`client/document`, as pages and logs show it."""
        client = f"{self.client}~short" if self.is_short else self.client
        return f"{client}/{self.document}" if client or self.user else self.document


NO_SESSION = SessionKey("", "")
"""Of a workspace without a prompt."""


@dataclass(frozen=True, slots=True)
class TierStats:
    """The content of one tier. A page that is also saved on disk counts in both tiers.

    Snapshots of recurrent layers count as a tier of their own, the last: each as a page, without tokens.
    """

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
    """Set by the engine, which owns the workspaces; of all of them, with their snapshots."""

    @property
    def used_bytes(self) -> int:
        return sum(tier.used_bytes for tier in self.tiers)

    @property
    def tokens(self) -> int:
        return sum(tier.tokens for tier in self.tiers)


# ruff: noqa: ARG002 -- nothing is copied


class DryWorkspace(Workspace):
    """Implements `Workspace` with empty payloads that are counted at full size."""

    def __init__(self, bytes_per_token: int, snapshots: Snapshots | None = None) -> None:
        self._bytes_per_token = bytes_per_token
        self.snapshots = snapshots

    @property
    def bytes_per_token(self) -> int:
        return self._bytes_per_token

    def export_kv(self, start: int, stop: int) -> object:
        return None

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        return

"""A store that keeps nothing: the oracle that every other store's results are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from kv_store.errors import ReleasedMatchError
from kv_store.interface import SessionStats, StoreStats, Workspace


class EmptyMatch:
    """A match of no tokens."""

    length = 0

    def __init__(self) -> None:
        self._released = False

    def load(self, workspace: Workspace, start: int = 0) -> int:
        if self._released:
            raise ReleasedMatchError("load after release")
        return start

    def release(self) -> None:
        if self._released:
            raise ReleasedMatchError("released twice")
        self._released = True

    def __enter__(self) -> EmptyMatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class NaiveStore:
    """Implements `KVStore` by computing everything again."""

    def match_prefix(self, token_ids: Sequence[int], namespace: str = "") -> EmptyMatch:
        return EmptyMatch()

    def insert_prefix(self, token_ids: Sequence[int], workspace: Workspace, session: str, namespace: str = "") -> int:
        return 0

    def pin(self, session: str) -> None:
        return

    def unpin(self, session: str) -> None:
        return

    def purge(self, session: str) -> int:
        return 0

    def save(self, seconds: float | None = None) -> bool:
        return True

    def stats(self) -> StoreStats:
        return StoreStats(tiers=(), evicted_tokens=0)

    def session_stats(self, most: int) -> list[SessionStats]:
        return []

    def check_integrity(self) -> None:
        return

    def close(self) -> None:
        return

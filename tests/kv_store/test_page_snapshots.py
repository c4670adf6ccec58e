"""Snapshots beside pages: found by prefix, dropped with their pages, and by use when there is no room."""

from __future__ import annotations

from collections.abc import Sequence

from inference.engine.sessions import session_key as key
from kv_store.interface import DryWorkspace
from kv_store.page_snapshots import SnapshotTier
from kv_store.snapshots import Snapshots, StateSnapshot
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from tests.kv_store.integrity import check_integrity

PROMPT = tuple(range(100, 140))


def make_store(snapshots: int = 10, tokens: int = 1000) -> PagedStore:
    tiers = [SnapshotTier("snapshots", snapshots, MemoryStorage())] if snapshots else []
    return PagedStore([Tier("device", 4 * tokens, MemoryStorage())], 4, tiers)


def workspace(*positions: int, anchor: int = 1000) -> DryWorkspace:
    """One with a snapshot of one byte at each position, whose state is the position."""
    snapshots = Snapshots(100)
    snapshots.note_prompt(1000, (anchor,))
    for position in positions:
        snapshots.put(position, StateSnapshot(position, 1))
    return DryWorkspace(4, snapshots)


def found(store: PagedStore, token_ids: Sequence[int]) -> int:
    """Where a forward goes on in an empty workspace that has loaded the match."""
    check_integrity(store)
    empty = workspace()
    with store.match_prefix(token_ids) as match:
        where = match.resumable(empty)
        assert empty.resumable(match.load(empty)) == where
        assert empty.snapshots is not None
        assert not where or empty.snapshots[where] == StateSnapshot(where, 1)
    return where


def kept(store: PagedStore) -> int:
    return store.stats().tiers[-1].pages


def test_a_match_goes_on_at_its_deepest_snapshot() -> None:
    store = make_store()
    store.insert_prefix(PROMPT, workspace(10, 30, 50), key("a"))
    assert [found(store, PROMPT[:length]) for length in (9, 10, 29, 40)] == [0, 10, 10, 30]
    assert found(store, (*PROMPT[:20], 7, 8)) == 10
    with store.match_prefix(PROMPT) as match:
        assert match.resumable(DryWorkspace(4)) == match.load(DryWorkspace(4)) == 40


def test_a_longer_prompt_takes_over_the_snapshots_of_the_page_that_it_replaces() -> None:
    store = make_store()
    store.insert_prefix(PROMPT[:35], workspace(34), key("a"))
    store.insert_prefix(PROMPT, workspace(40), key("a"))
    assert [found(store, PROMPT[:length]) for length in (39, 40)] == [34, 40]


def test_what_is_kept_of_a_prompt_is_up_to_its_anchor_and_near_its_end() -> None:
    store = make_store()
    store.insert_prefix(PROMPT, workspace(8, 16, 20, 24, 32, 38, 40, anchor=20), key("a"))
    assert [found(store, PROMPT[:length]) for length in (19, 37, 39, 40)] == [16, 20, 38, 40]
    assert kept(store) == 5


def test_the_least_recently_used_leaves_and_only_one_that_was_needed_counts_as_used() -> None:
    store = make_store(snapshots=3)
    store.insert_prefix(PROMPT, workspace(8, 16, 24), key("a"))
    assert found(store, PROMPT[:10]) == 8
    store.insert_prefix((1, 2, 3), workspace(3), key("b"))
    assert [found(store, PROMPT[:length]) for length in (8, 16, 24)] == [8, 8, 24]


def test_snapshots_leave_with_their_pages() -> None:
    store = make_store(tokens=48)
    store.insert_prefix(PROMPT, workspace(8, 40), key("client/a"))
    store.insert_prefix((1, 2, 3), workspace(3), key("client/b"))
    store.purge("a")
    assert (kept(store), found(store, PROMPT), found(store, (1, 2, 3))) == (1, 0, 3)
    store.insert_prefix(range(48), workspace(48), key("client/c"))  # evicts what was there
    assert (kept(store), found(store, (1, 2, 3)), found(store, range(48))) == (1, 0, 48)
    store.clear(disk=False)
    assert kept(store) == 0


def test_a_model_without_recurrent_layers_has_no_tier_of_snapshots() -> None:
    assert [tier.name for tier in make_store(snapshots=0).stats().tiers] == ["device"]
    assert [tier.name for tier in make_store().stats().tiers] == ["device", "snapshots"]

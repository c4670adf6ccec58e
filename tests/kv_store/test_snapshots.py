from __future__ import annotations

from kv_store.interface import DryWorkspace
from kv_store.snapshots import FEWEST_SNAPSHOTS, MOST_SNAPSHOTS, Snapshots, StateSnapshot, budget_of_a_slot


def kept(snapshots: Snapshots) -> list[int]:
    return [position for position, _ in snapshots.within(10**6)]


def filled(positions: range, budget_bytes: int = 2**30) -> Snapshots:
    snapshots = Snapshots(budget_bytes)
    for position in positions:
        snapshots.put(position, StateSnapshot(position, 10))
    return snapshots


def test_a_forward_goes_on_at_the_deepest_snapshot() -> None:
    workspace = DryWorkspace(4, filled(range(10, 40, 10)))
    assert [workspace.resumable(length) for length in (9, 10, 29, 99)] == [0, 10, 20, 30]
    assert DryWorkspace(4).resumable(29) == 29
    assert workspace.snapshots is not None
    workspace.snapshots.drop_beyond(20)
    assert (workspace.resumable(99), len(workspace.snapshots)) == (20, 2)


def test_the_budget_leaves_more_near_the_end_of_the_prompt_and_what_is_pinned() -> None:
    snapshots = Snapshots(100)
    snapshots.note_prompt(1000, (700,))
    for position in (*range(100, 1000, 100), *range(990, 1030)):
        snapshots.put(position, StateSnapshot(position, 10))
    positions = kept(snapshots)
    assert snapshots.used_bytes == 100
    assert {700, 1000, 1029} <= set(positions)  # pinned, the prompt's end, and the last one put
    assert sum(abs(1000 - position) <= 30 for position in positions) >= 6
    assert sum(position <= 900 for position in positions) >= 2


def test_a_store_is_given_those_up_to_the_anchor_and_the_two_where_the_prompt_goes_on() -> None:
    snapshots = filled(range(10, 80, 10))
    snapshots.note_prompt(60, (20,))
    assert [position for position, _ in snapshots.lasting(60)] == [10, 20, 50, 60]


def test_what_is_needed_is_kept_beyond_the_budget() -> None:
    snapshots = Snapshots(0)
    snapshots.note_prompt(9, (5,))
    for position in range(1, 12):
        snapshots.put(position, StateSnapshot(None, 10))
    assert kept(snapshots) == [5, 9, 10, 11]  # 10: where a forward up to 11 began


def test_small_snapshots_are_limited_in_number() -> None:
    assert len(filled(range(1, 2 * MOST_SNAPSHOTS))) == MOST_SNAPSHOTS


def test_a_slot_has_room_for_some_large_snapshots_and_no_more_than_it_needs_for_small_ones() -> None:
    assert budget_of_a_slot(150 * 2**20) == FEWEST_SNAPSHOTS * 150 * 2**20
    assert budget_of_a_slot(20 * 2**20) == 256 * 2**20
    assert budget_of_a_slot(1000) == MOST_SNAPSHOTS * 1000

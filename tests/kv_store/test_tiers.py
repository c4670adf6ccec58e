from typing import Any

import pytest

from kv_store.interface import DryWorkspace
from kv_store.page_tree import Page
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier

BYTES = 10
WORKSPACE = DryWorkspace(BYTES)


class LastingStorage(MemoryStorage):
    durable = True


class FullStorage(MemoryStorage):
    full = True

    def put(self, payload: object, count: int) -> object:
        if self.full:
            raise OSError("no space left")
        return payload


def make(*tiers: tuple[int, MemoryStorage]) -> PagedStore:
    return PagedStore([Tier(f"tier{level}", tokens * BYTES, storage) for level, (tokens, storage) in enumerate(tiers)], BYTES)


def insert(store: PagedStore, first: int, count: int, session: str = "a") -> int:
    grown = store.insert_prefix(range(first, first + count), WORKSPACE, session)
    store.check_integrity()
    return grown


def path(store: PagedStore, first: int, count: int = 100) -> list[Page]:
    return store._tree.find_prefix(tuple(range(first, first + count)))[0]


def levels(store: PagedStore, first: int) -> list[int]:
    return [page.level for page in path(store, first)]


def tokens(store: PagedStore) -> list[int]:
    return [tier.tokens for tier in store.stats().tiers]


def test_tails_of_the_least_recently_used_go_first() -> None:
    store = make((64, MemoryStorage()), (32, MemoryStorage()))
    insert(store, 0, 48)
    insert(store, 1000, 32)
    assert levels(store, 0) == [0, 0, 1]
    store.match_prefix(range(48)).release()
    insert(store, 2000, 16)
    assert levels(store, 0) == [0, 0, 1], "it was used more recently"
    assert levels(store, 1000) == [0, 1]
    insert(store, 3000, 64)
    assert tokens(store) == [64, 32]
    assert levels(store, 3000) == [0, 0, 0, 0]
    assert store.stats().evicted_tokens == 48 + 32 + 16 + 64 - 96


def test_a_pin_moves_on_with_what_is_inserted() -> None:
    store = make((48, MemoryStorage()))
    store.pin("a")
    insert(store, 0, 48)
    assert insert(store, 1000, 16, "b") == 0
    assert insert(store, 2000, 48) == 48, "the session's own pin does not stand in its way"
    assert insert(store, 1000, 16, "b") == 0
    store.unpin("a")
    assert insert(store, 1000, 48, "b") == 48


def test_what_was_last_inserted_for_a_pinned_session_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make((100, MemoryStorage()))
    locked: list[int] = []
    lock = store._residency.lock

    def count(pages: list[Page], *, pins: bool = False) -> None:
        locked.extend([len(pages)] * (not pins))
        lock(pages, pins=pins)

    monkeypatch.setattr(store._residency, "lock", count)
    store.pin("a")
    insert(store, 0, 48)
    locked.clear()
    assert insert(store, 0, 48) == 0
    assert not locked
    insert(store, 0, 48, "b")
    insert(store, 0, 32)
    insert(store, 0, 48)
    store.unpin("a")
    insert(store, 0, 48)
    assert len(locked) == 4, "another session, another last prefix twice, and one that nothing holds"


def test_what_is_inserted_again_for_a_pinned_session_is_its_own_and_moves_up() -> None:
    store = make((48, MemoryStorage()), (96, MemoryStorage()))
    insert(store, 0, 48, "b")
    store.pin("a")
    insert(store, 0, 40)
    insert(store, 0, 48)
    assert path(store, 0)[-1].owners == {"a": 16, "b": 16}
    store.unpin("a")
    insert(store, 1000, 48, "c")
    assert levels(store, 0) == [1, 1, 1]
    store.pin("a")
    insert(store, 0, 48)
    assert levels(store, 0) == [0, 0, 0]


def test_what_is_in_use_stays_where_it_is() -> None:
    store = make((48, MemoryStorage()), (16, MemoryStorage()))
    insert(store, 0, 32)
    with store.match_prefix(range(32)):
        assert insert(store, 1000, 48) == 32, "16 in the first tier, 16 in the second"
        assert levels(store, 0) == [0, 0]
    insert(store, 2000, 48)
    assert levels(store, 2000) == [0, 0, 0]


def test_pins_of_several_sessions_on_shared_pages_add_up() -> None:
    store = make((32, MemoryStorage()))
    for session in "ab":
        insert(store, 0, 32, session)
        store.pin(session)
    store.unpin("a")
    store.check_integrity()
    assert insert(store, 1000, 16, "c") == 0
    store.purge("b")
    store.check_integrity()
    assert insert(store, 1000, 16, "c") == 16


def test_a_pin_outlasts_a_longer_sibling_of_its_last_page() -> None:
    store = make((32, MemoryStorage()))
    insert(store, 0, 3)
    store.pin("a")
    insert(store, 0, 7, "b")
    assert tokens(store) == [7]
    insert(store, 1000, 32, "c")
    assert store.match_prefix(range(3)).length == 3


def test_a_page_does_not_stand_above_its_parent() -> None:
    store = make((20, MemoryStorage()), (100, MemoryStorage()))
    insert(store, 0, 16)
    store.pin("a")
    insert(store, 1000, 20, "b")
    assert levels(store, 1000) == [1, 1], "its last page would fit the first tier"
    with store.match_prefix(range(1000, 1020)) as match:
        match.load(WORKSPACE)
        store.check_integrity()
    assert levels(store, 1000) == [1, 1]


def test_nothing_grows_where_pins_leave_no_room() -> None:
    store = make((20, MemoryStorage()))
    insert(store, 0, 20)
    store.pin("a")
    assert store.insert_prefix([*range(20), 7], WORKSPACE, "b") == 0
    store.check_integrity()


def test_a_short_page_in_use_is_left_alone_by_a_longer_sibling() -> None:
    store = make((100, MemoryStorage()))
    insert(store, 0, 3)
    with store.match_prefix(range(3)) as match:
        assert insert(store, 0, 7) == 4
        assert tokens(store) == [10]
        assert match.load(WORKSPACE) == 3
    insert(store, 0, 9)
    assert tokens(store) == [3 + 9]


@pytest.mark.parametrize("how", ["loaded", "inserted again"])
def test_what_is_used_moves_up(how: str) -> None:
    store = make((32, MemoryStorage()), (64, MemoryStorage()))
    insert(store, 0, 32)
    insert(store, 1000, 32)
    assert levels(store, 0) == [1, 1]
    if how == "loaded":
        with store.match_prefix(range(32)) as match:
            assert match.load(WORKSPACE) == 32
            store.check_integrity()
    else:
        assert insert(store, 0, 32) == 0
    assert levels(store, 0) == [0, 0]
    assert levels(store, 1000) == [1, 1]
    assert tokens(store) == [32, 32]


def test_a_page_below_takes_its_place_before_its_ancestors_there() -> None:
    """The first page has a copy in the lasting tier when its tail comes down: the tail must still go first."""
    store = make((32, MemoryStorage()), (48, LastingStorage()))
    insert(store, 0, 16)
    insert(store, 1000, 32)  # page 0 goes down
    insert(store, 0, 32)  # and up again, its copy stays; then it gets a tail
    insert(store, 2000, 16)  # the tail goes down
    assert [sorted(page.copies) for page in path(store, 0)] == [[0, 1], [1]]
    insert(store, 3000, 32)
    insert(store, 4000, 32)
    assert levels(store, 0) in ([1], []), "its tail went first"


@pytest.mark.parametrize(("below", "left"), [((), []), (((100, MemoryStorage()),), [2])])
def test_a_page_does_not_pass_by_its_children_on_the_way_down(below: tuple[Any, ...], left: list[int]) -> None:
    """A page that fits no lower tier is gone, with all below it."""
    store = make((48, MemoryStorage()), (8, MemoryStorage()), *below)
    insert(store, 0, 40)
    insert(store, 1000, 16)
    assert levels(store, 0) == [0, 0, 1]
    insert(store, 2000, 48)
    assert levels(store, 0) == left, "the second page could not pass by the last, and they went together"


def test_pressure_below_leaves_the_copy_above_alone() -> None:
    store = make((64, MemoryStorage()), (16, LastingStorage()))
    insert(store, 0, 16)
    insert(store, 1000, 64)
    insert(store, 0, 16)  # up again; its copy below stays
    assert [sorted(page.copies) for page in path(store, 0)] == [[0, 1]]
    insert(store, 2000, 16)
    assert [sorted(page.copies) for page in path(store, 0)] == [[0]]


def test_a_page_is_gone_where_the_tier_above_breaks_down() -> None:
    class Breaking(MemoryStorage):
        broken = False

        def put(self, payload: object, count: int) -> object:
            if self.broken:
                raise MemoryError
            return payload

    storage = Breaking()
    store = make((32, storage), (64, MemoryStorage()))
    insert(store, 0, 32)
    insert(store, 1000, 32)
    storage.broken = True
    with store.match_prefix(range(32)) as match, pytest.raises(MemoryError):
        match.load(WORKSPACE)
    store.check_integrity()
    assert levels(store, 0) == []
    with pytest.raises(MemoryError):
        store.insert_prefix(range(1000, 1032), WORKSPACE, "b")
    store.check_integrity()


def test_an_insertion_that_breaks_off_leaves_the_store_in_order() -> None:
    class Breaking(DryWorkspace):
        def export_kv(self, start: int, stop: int) -> object:
            if start >= 32:
                raise RuntimeError("broken")
            return None

    store = make((200, MemoryStorage()))
    insert(store, 0, 20)
    store.pin("a")
    with pytest.raises(RuntimeError, match="broken"):
        store.insert_prefix(range(100), Breaking(BYTES), "a")
    store.check_integrity()
    assert store.match_prefix(range(100)).length == 32
    assert [page.pins for page in path(store, 0)] == [1, 1]


def test_no_byte_is_spent_before_there_is_room() -> None:
    class Watched(MemoryStorage):
        def put(self, payload: object, count: int) -> object:
            assert tier.used_bytes + count * BYTES <= tier.budget_bytes
            return payload

    tier = Tier("watched", 40 * BYTES, Watched())
    store = PagedStore([tier], BYTES)
    for first in range(0, 5000, 1000):
        insert(store, first, 40)


def test_a_tier_that_cannot_be_written_to_is_passed_over_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    storage = FullStorage()
    store = make((32, MemoryStorage()), (32, storage))
    for first in (0, 1000, 2000):
        insert(store, first, 32)
    assert levels(store, 0) == []
    assert caplog.text.count("the tier1 tier takes no more pages") == 1
    storage.full = False
    insert(store, 3000, 32)
    assert levels(store, 2000) == [1, 1]
    assert caplog.text.count("the tier1 tier can be written to again") == 1


def test_a_store_refuses_tiers_below_a_lasting_one() -> None:
    with pytest.raises(ValueError, match="below the disk"):
        make((1, LastingStorage()), (1, MemoryStorage()))
    with pytest.raises(ValueError, match="at least one tier"):
        make()

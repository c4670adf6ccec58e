"""Every kind of sabotage must be noticed, and named."""

from collections.abc import Callable

import pytest

from kv_store.page_tree import Page
from kv_store.paged.store import PagedStore


def first(store: PagedStore) -> Page:
    return store._tree.root.children[0]


def last(store: PagedStore) -> Page:
    return store._tree.tails["a"]


def wrong_place(store: PagedStore) -> None:
    last(store).start += 1


def wrong_tokens(store: PagedStore) -> None:
    last(store).token_ids = (1,)


def not_a_child(store: PagedStore) -> None:
    last(store).parent.children.remove(last(store))


def child_of_another(store: PagedStore) -> None:
    last(store).parent = store._tree.root


def siblings_out_of_order(store: PagedStore) -> None:
    store._tree.root.children.reverse()


def below_a_short_page(store: PagedStore) -> None:
    page = Page((9,), last(store))
    last(store).children.append(page)


def without_a_copy(store: PagedStore) -> None:
    last(store).copies.clear()


def above_its_parent(store: PagedStore) -> None:
    page = first(store)
    page.copies[1] = page.copies.pop(0)


def leaked_reference(store: PagedStore) -> None:
    store._residency.lock([first(store)])


def lost_reference(store: PagedStore) -> None:
    first(store).refs -= 1


def leaked_pin(store: PagedStore) -> None:
    store._residency.pin([first(store)])


def without_use(store: PagedStore) -> None:
    last(store).uses.clear()


def use_of_too_much(store: PagedStore) -> None:
    last(store).uses["a"] = 100


def use_of_the_tail_alone(store: PagedStore) -> None:
    last(store).uses["c"] = 1


def tail_that_is_gone(store: PagedStore) -> None:
    store._tree.tails["a"] = Page((1,), store._tree.root)


def tail_of_another(store: PagedStore) -> None:
    store._tree.tails["c"] = first(store)


def page_not_counted(store: PagedStore) -> None:
    store._residency.tiers[0].held.popitem()


def page_counted_twice(store: PagedStore) -> None:
    tier = store._residency.tiers[0]
    tier.evictable.update(tier.held)


def wrong_bytes(store: PagedStore) -> None:
    store._residency.tiers[0].used_bytes -= 1


def wrong_evictable_bytes(store: PagedStore) -> None:
    store._residency.tiers[0].evictable_bytes += 1


def wrong_tokens_counted(store: PagedStore) -> None:
    store._residency.tiers[0].tokens += 1


def over_budget(store: PagedStore) -> None:
    store._residency.tiers[0].budget_bytes = 100


def wrong_order(store: PagedStore) -> None:
    tier = store._residency.tiers[0]
    for page in reversed(list(tier.evictable)):
        tier.touch(page)


def held_for_nothing(store: PagedStore) -> None:
    store._residency.tiers[0].hold(next(iter(store._residency.tiers[0].evictable)))


def evictable_though_held(store: PagedStore) -> None:
    store._residency.tiers[0].let_go(first(store))


def orphaned_file(store: PagedStore) -> None:
    assert store._folder
    (store._folder.folder / "000000ff.safetensors").write_bytes(b"")


SABOTAGE: list[tuple[Callable[[PagedStore], None], str]] = [
    (wrong_place, "is not after"),
    (wrong_tokens, "another's digest"),
    (child_of_another, "which is not its parent"),
    (siblings_out_of_order, "not in the order"),
    (not_a_child, "counts other pages|is gone"),
    (below_a_short_page, "not full"),
    (without_a_copy, "in no tier"),
    (above_its_parent, "in a higher tier"),
    (leaked_reference, "is used by 1 live matches"),
    (lost_reference, "is used by 1 live matches"),
    (leaked_pin, "paths of 0 pinned sessions"),
    (without_use, "is used by no document"),
    (use_of_too_much, "has 100 tokens used by a"),
    (use_of_the_tail_alone, "is used by c, but"),
    (tail_that_is_gone, "last path of a ends at .* gone"),
    (tail_of_another, "last path of c ends at .* not used by it"),
    (page_not_counted, "counts other pages"),
    (page_counted_twice, "counts pages twice"),
    (wrong_bytes, "tier counts .* bytes"),
    (wrong_evictable_bytes, "evictable bytes"),
    (wrong_tokens_counted, "tier counts .* tokens"),
    (over_budget, "over its budget"),
    (wrong_order, "would leave the device tier before"),
    (held_for_nothing, "is not held, but"),
    (evictable_though_held, "is held, but"),
    (orphaned_file, "files of no page"),
]


@pytest.mark.parametrize(("sabotage", "noticed"), SABOTAGE, ids=lambda case: getattr(case, "__name__", ""))
def test_sabotage_is_noticed(sabotage: Callable[[PagedStore], None], noticed: str, kv, make_store) -> None:
    store = make_store(device=100, host=100, disk=100)
    held, loose = range(40), range(100, 140)
    store.insert_prefix(held, kv.workspace(held), "a")
    store.insert_prefix(loose, kv.workspace(loose), "b")
    store.match_prefix(range(32))
    store.check_integrity()
    sabotage(store)
    with pytest.raises(AssertionError, match=noticed):
        store.check_integrity()

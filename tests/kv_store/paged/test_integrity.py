"""Every kind of sabotage must be noticed, and named."""

import pytest

from kv_store.page_tree import Page
from kv_store.paged.store import PagedStore

NOTICED = {
    "wrong place": "is not after",
    "wrong tokens": "another's digest",
    "child of another": "which is not its parent",
    "siblings out of order": "not in the order",
    "not a child": "counts other pages|is gone",
    "below a short page": "not full",
    "without a copy": "in no tier",
    "above its parent": "in a higher tier",
    "leaked reference": "is used by 1 live matches",
    "lost reference": "is used by 1 live matches",
    "leaked pin": "paths of 0 pinned sessions",
    "without use": "is used by no document",
    "use of too much": "has 100 tokens used by a",
    "use of the tail alone": "is used by c, but",
    "tail that is gone": "last path of a ends at .* gone",
    "tail of another": "last path of c ends at .* not used by it",
    "page not counted": "counts other pages",
    "page counted twice": "counts pages twice",
    "wrong bytes": "tier counts .* bytes",
    "wrong evictable bytes": "evictable bytes",
    "wrong tokens counted": "tier counts .* tokens",
    "over budget": "over its budget",
    "wrong order": "would leave the device tier before",
    "held for nothing": "is not held, but",
    "evictable though held": "is held, but",
    "orphaned file": "files of no page",
}


def sabotage(store: PagedStore, how: str) -> None:
    tree, residency = store._tree, store._residency
    tier, first, last = residency.tiers[0], tree.root.children[0], tree.tails["a"]
    match how:
        case "wrong place":
            last.start += 1
        case "wrong tokens":
            last.token_ids = (1,)
        case "child of another":
            last.parent = tree.root
        case "siblings out of order":
            tree.root.children.reverse()
        case "not a child":
            last.parent.children.remove(last)
        case "below a short page":
            page = Page((9,), last)
            last.children.append(page)
        case "without a copy":
            last.copies.clear()
        case "above its parent":
            page = first
            page.copies[1] = page.copies.pop(0)
        case "leaked reference":
            residency.lock([first])
        case "lost reference":
            first.refs -= 1
        case "leaked pin":
            residency.pin([first])
        case "without use":
            last.uses.clear()
        case "use of too much":
            last.uses["a"] = 100
        case "use of the tail alone":
            last.uses["c"] = 1
        case "tail that is gone":
            tree.tails["a"] = Page((1,), tree.root)
        case "tail of another":
            tree.tails["c"] = first
        case "page not counted":
            tier.held.popitem()
        case "page counted twice":
            tier.evictable.update(tier.held)
        case "wrong bytes":
            tier.used_bytes -= 1
        case "wrong evictable bytes":
            tier.evictable_bytes += 1
        case "wrong tokens counted":
            tier.tokens += 1
        case "over budget":
            tier.budget_bytes = 100
        case "wrong order":
            for page in reversed(list(tier.evictable)):
                tier.touch(page)
        case "held for nothing":
            tier.hold(next(iter(tier.evictable)))
        case "evictable though held":
            tier.let_go(first)
        case "orphaned file":
            assert store._folder
            (store._folder.folder / "000000ff.safetensors").write_bytes(b"")


@pytest.mark.parametrize("how", NOTICED)
def test_sabotage_is_noticed(how: str, kv, make_store) -> None:
    store = make_store(device=100, host=100, disk=100)
    held, loose = range(40), range(100, 140)
    store.insert_prefix(held, kv.workspace(held), "a")
    store.insert_prefix(loose, kv.workspace(loose), "b")
    store.match_prefix(range(32))
    store.check_integrity()
    sabotage(store, how)
    with pytest.raises(AssertionError, match=NOTICED[how]):
        store.check_integrity()

"""Every kind of sabotage must be noticed, and named."""

import pytest

from kv_store.page_tree import Page

SABOTAGE = {
    "wrong place": ("last.start += 1", "is not after"),
    "wrong tokens": ("last.token_ids = (1,)", "another's digest"),
    "child of another": ("last.parent = tree.root", "which is not its parent"),
    "siblings out of order": ("tree.root.children.reverse()", "not in the order"),
    "not a child": ("last.parent.children.remove(last)", "counts other pages|is gone"),
    "below a short page": ("last.children.append(Page((9,), last))", "not full"),
    "without a copy": ("last.copies.clear()", "in no tier"),
    "above its parent": ("first.copies[1] = first.copies.pop(0)", "in a higher tier"),
    "leaked reference": ("residency.lock([first])", "is used by 1 live matches"),
    "lost reference": ("first.refs -= 1", "is used by 1 live matches"),
    "leaked pin": ("residency.lock([first], pins=True)", "paths of 0 pinned sessions"),
    "without use": ("last.uses.clear()", "is used by no document"),
    "use of too much": ('last.uses["a"] = 100', "has 100 tokens used by a"),
    "use of the tail alone": ('last.uses["c"] = 1', "is used by c, but"),
    "tail that is gone": ('tree.tails["a"] = Page((1,), tree.root)', "last path of a ends at .* gone"),
    "tail of another": ('tree.tails["c"] = first', "last path of c ends at .* not used by it"),
    "page not counted": ("tier.held.popitem()", "counts other pages"),
    "page counted twice": ("tier.evictable.update(tier.held)", "counts pages twice"),
    "wrong bytes": ("tier.used_bytes -= 1", "tier counts .* bytes"),
    "wrong evictable bytes": ("tier.evictable_bytes += 1", "evictable bytes"),
    "wrong tokens counted": ("tier.tokens += 1", "tier counts .* tokens"),
    "over budget": ("tier.budget_bytes = 100", "over its budget"),
    "wrong order": (
        "for page in reversed(list(tier.evictable)): tier.touch(page)",
        "would leave the device tier before",
    ),
    "held for nothing": ("tier.hold(next(iter(tier.evictable)))", "is not held, but"),
    "evictable though held": ("tier.let_go(first)", "is held, but"),
    "orphaned file": ('(store._folder.folder / "000000ff.safetensors").write_bytes(b"")', "files of no page"),
}
"""By name: the statement, and how it is noticed."""


@pytest.mark.parametrize(("statement", "told"), SABOTAGE.values(), ids=SABOTAGE)
def test_sabotage_is_noticed(statement: str, told: str, kv, make_store) -> None:
    store = make_store(device=100, host=100, disk=100)
    held, loose = range(40), range(100, 140)
    store.insert_prefix(held, kv.workspace(held), "a")
    store.insert_prefix(loose, kv.workspace(loose), "b")
    store.match_prefix(range(32))
    store.check_integrity()
    tree, residency = store._tree, store._residency
    tier, first, last = residency.tiers[0], tree.root.children[0], tree.tails["a"]
    exec(statement, {"Page": Page, **locals()})
    with pytest.raises(AssertionError, match=told):
        store.check_integrity()

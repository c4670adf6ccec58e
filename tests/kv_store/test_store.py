"""Every kind of sabotage must be noticed, and named.

The contract of a store, over one without room and one with two tiers.
"""

import pytest

from inference.engine.sessions import session_key as key
from kv_store.interface import DryWorkspace, ReleasedMatchError
from kv_store.page_tree import Page
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from tests.kv_store.integrity import check_integrity

SABOTAGE = {
    "wrong place": ("last.start += 1", "is not after"),
    "wrong tokens": ("last.token_ids = (1,)", "another's digest"),
    "child of another": ("last.parent = tree.root", "which is not its parent"),
    "siblings out of order": ("tree.root.children.reverse()", "not in the order"),
    "not a child": ("last.parent.children.remove(last)", "counts other pages|is gone|has no owner"),
    "below a short page": ("last.children.append(Page((9,), last))", "not full"),
    "without a copy": ("last.copies.clear()", "in no tier"),
    "above its parent": ("first.copies[1] = first.copies.pop(0)", "in a higher tier"),
    "leaked reference": ("residency.lock([first])", "is used by 1 live matches"),
    "lost reference": ("first.refs -= 1", "is used by 1 live matches"),
    "leaked pin": ("residency.lock([first], pins=True)", "paths of 0 pinned sessions"),
    "without owner": ("tree._disclaim(last, 'a')", "has no owner that used all of it"),
    "use of too much": ('tree.claim(last, "a", 100)', "has 100 tokens used by a"),
    "owner that cannot be purged": ('last.owners["c"] = 1', "owners are not those that the tree finds"),
    "too many owners": (
        'tree._owned |= {n: {last} for n in "cdefghij"}; last.owners |= dict.fromkeys("cdefghij", 1)',
        "names 9 owners",
    ),
    "tail that is gone": ('tree.tails[key("a")] = Page((1,), tree.root)', "last path of a ends at .* gone"),
    "page not counted": ("tier.held.popitem()", "counts other pages"),
    "page counted twice": ("tier.evictable.update(tier.held)", "counts pages twice"),
    "wrong bytes": ("tier.used_bytes -= 1", "tier counts .* bytes"),
    "wrong evictable bytes": ("tier.evictable_bytes += 1", "evictable bytes"),
    "wrong tokens counted": ("tier.tokens += 1", "tier counts .* tokens"),
    "over budget": ("tier.budget_bytes = 100", "over its budget"),
    "wrong order": ("for page in reversed(list(tier.evictable)): tier.touch(page)", "would leave the device tier before"),
    "held for nothing": ("tier.hold(next(iter(tier.evictable)))", "is not held, but"),
    "evictable though held": ("tier.release(first)", "is held, but"),
    "orphaned file": ('(store._folder.folder / "000000ff.safetensors").write_bytes(b"")', "files of no page"),
}
"""By name: the statement, and how it is noticed."""


@pytest.mark.parametrize(("statement", "told"), SABOTAGE.values(), ids=SABOTAGE)
def test_sabotage_is_noticed(statement: str, told: str, kv, make_store) -> None:
    store = make_store(device=100, host=100, disk=100)
    held, loose = range(40), range(100, 140)
    store.insert_prefix(held, kv.workspace(held), key("a"))
    store.insert_prefix(loose, kv.workspace(loose), key("b"))
    store.match_prefix(range(32))
    check_integrity(store)
    tree, residency = store._tree, store._residency
    tier, first, last = residency.tiers[0], tree.root.children[0], tree.tails[key("a")]
    exec(statement, {"Page": Page, "key": key, **locals()})
    with pytest.raises(AssertionError, match=told):
        check_integrity(store)


IDS = tuple(range(40))


def test_load_writes_what_is_asked_for_and_nothing_else(kv, make_store) -> None:
    store = make_store()
    store.insert_prefix(IDS, kv.workspace(IDS), key("a"))
    asked = (*IDS[:37], 99, 98)
    with store.match_prefix(asked) as match:
        for start in (0, 5, 16, 20, 36, 37):
            workspace = kv.workspace()
            assert match.load(workspace, start) == 37
            assert kv.held(workspace, asked) == [start <= place < 37 for place in range(39)]
            assert workspace.buffer[..., 37:, :].isnan().all()


def test_what_lies_before_start_is_lifted_from_the_workspace(kv, make_store) -> None:
    store = make_store(device=48, host=48)
    store.insert_prefix(IDS, kv.workspace(IDS), key("a"))
    other = tuple(range(100, 148))
    store.insert_prefix(other, kv.workspace(other), key("a"))
    workspace = kv.workspace(IDS[:20])
    with store.match_prefix(IDS) as match:
        assert match.load(workspace, 20) == 40
        assert all(kv.held(workspace, IDS))
        check_integrity(store)
    assert [tier.tokens for tier in store.stats().tiers] == [40, 48]
    with store.match_prefix(IDS) as match:
        workspace = kv.workspace()
        match.load(workspace)
        assert all(kv.held(workspace, IDS))


def test_a_purged_page_is_not_loaded_by_a_match_that_saw_it(kv, make_store) -> None:
    store = make_store()
    store.insert_prefix(IDS, kv.workspace(IDS), key("a"))
    store.insert_prefix(IDS[:16], kv.workspace(IDS), key("b"))
    with store.match_prefix(IDS) as match:
        assert store.purge("a") == 24
        check_integrity(store)
        assert match.load(kv.workspace(IDS), 40) == 40
        assert match.length == 16
        assert match.load(kv.workspace(IDS[:20]), 20) == 20
        workspace = kv.workspace()
        assert match.load(workspace) == 16
        assert kv.held(workspace, IDS) == [place < 16 for place in range(40)]
    check_integrity(store)


BYTES = 10
WORKSPACE = DryWorkspace(BYTES)


def paged(*budget_tokens: int) -> PagedStore:
    tiers = [Tier(f"tier{level}", tokens * BYTES, MemoryStorage()) for level, tokens in enumerate(budget_tokens)]
    return PagedStore(tiers, BYTES)


def resident(store: PagedStore, token_ids: list[int]) -> int:
    with store.match_prefix(token_ids) as match:
        return match.length


def test_releasing_twice_is_an_error() -> None:
    store = paged(1000, 2000)
    store.insert_prefix(range(20), WORKSPACE, key("a"))
    match = store.match_prefix(range(20))
    match.release()
    with pytest.raises(ReleasedMatchError):
        match.release()
    with pytest.raises(ReleasedMatchError):
        match.load(WORKSPACE)
    check_integrity(store)


def test_a_document_can_be_purged_whoever_asked_for_it() -> None:
    store = paged(1000, 2000)
    store.insert_prefix(range(97), WORKSPACE, key("one/a"))  # whose last page has one token
    store.insert_prefix([*range(50), *range(200, 260)], WORKSPACE, key("two/a"))
    store.insert_prefix(range(32), WORKSPACE, key("two/b/a"))
    store.pin(key("two/a"))
    assert store.purge("c") == 0
    dropped = store.purge("a")
    assert resident(store, list(range(97))) == 32
    assert dropped == 97 + 62 - 32
    check_integrity(store)

"""The contract of a store, over one without room and one with two tiers."""

import pytest

from kv_store.dry_workspace import DryWorkspace
from kv_store.errors import ReleasedMatchError
from kv_store.paged.store import PagedStore
from kv_store.tiers.storage import MemoryStorage
from kv_store.tiers.tier import Tier

BYTES = 10
WORKSPACE = DryWorkspace(BYTES)


def paged(*budget_tokens: int) -> PagedStore:
    tiers = [Tier(f"tier{level}", tokens * BYTES, MemoryStorage()) for level, tokens in enumerate(budget_tokens)]
    return PagedStore(tiers, BYTES)


@pytest.fixture(params=[(0,), (1000, 2000)], ids=str)
def store(request: pytest.FixtureRequest) -> PagedStore:
    return paged(*request.param)


def resident(store: PagedStore, token_ids: list[int]) -> int:
    with store.match_prefix(token_ids) as match:
        return match.length


def test_a_match_is_never_longer_than_what_was_inserted(store: PagedStore) -> None:
    grown = store.insert_prefix(range(100), WORKSPACE, "a")
    store.check_integrity()
    assert resident(store, list(range(120))) == grown
    assert resident(store, [*range(50), 7]) == min(grown, 50)
    assert resident(store, [1, 2, 3]) == 0


def test_releasing_twice_is_an_error(store: PagedStore) -> None:
    store.insert_prefix(range(20), WORKSPACE, "a")
    match = store.match_prefix(range(20))
    match.release()
    with pytest.raises(ReleasedMatchError):
        match.release()
    with pytest.raises(ReleasedMatchError):
        match.load(WORKSPACE)
    store.check_integrity()


def test_unknown_sessions_can_be_pinned_unpinned_and_purged(store: PagedStore) -> None:
    store.unpin("nobody")
    store.pin("nobody")
    assert store.purge("nobody") == 0
    store.check_integrity()


def test_a_document_can_be_purged_whoever_asked_for_it() -> None:
    store = paged(1000, 2000)
    store.insert_prefix(range(100), WORKSPACE, "one/a")
    store.insert_prefix([*range(50), *range(200, 260)], WORKSPACE, "two/a")
    store.insert_prefix(range(32), WORKSPACE, "two/b/a")
    store.pin("two/a")
    assert store.purge("*/c") == 0
    dropped = store.purge("*/a")
    assert resident(store, list(range(100))) == 32
    assert dropped == 100 + 62 - 32
    store.check_integrity()


def test_an_empty_prompt_is_no_error(store: PagedStore) -> None:
    assert store.insert_prefix([], WORKSPACE, "a") == 0
    assert resident(store, []) == 0
    store.check_integrity()


def test_sessions_tell_their_residency_by_tier_the_latest_first() -> None:
    store = paged(64, 2000)
    for session, tokens in (("c/a", range(100)), ("c/b", range(1000, 1040)), ("d/a", range(50))):
        store.insert_prefix(tokens, WORKSPACE, session)
    found = {stats.session: stats.tokens for stats in store.session_stats(10)}
    assert list(found) == ["d/a", "c/b", "c/a"]
    assert {session: sum(tokens) for session, tokens in found.items()} == {"d/a": 64, "c/b": 40, "c/a": 100}
    assert sum(tokens[0] for tokens in found.values()) <= 2 * 64  # the pages that two sessions share count for both
    assert [stats.session for stats in store.session_stats(1)] == ["d/a"]

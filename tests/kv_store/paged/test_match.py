import pytest

from kv_store.errors import ReleasedMatchError

IDS = tuple(range(40))


def test_load_writes_what_is_asked_for_and_nothing_else(kv, make_store) -> None:
    store = make_store()
    store.insert_prefix(IDS, kv.workspace(IDS), "a")
    asked = (*IDS[:37], 99, 98)
    with store.match_prefix(asked) as match:
        for start in (0, 5, 16, 20, 36, 37):
            workspace = kv.workspace()
            assert match.load(workspace, start) == 37
            assert kv.held(workspace, asked) == [start <= place < 37 for place in range(39)]
            assert workspace.buffer[..., 37:, :].isnan().all()


def test_what_lies_before_start_is_lifted_from_the_workspace(kv, make_store) -> None:
    store = make_store(device=48, host=48)
    store.insert_prefix(IDS, kv.workspace(IDS), "a")
    other = tuple(range(100, 148))
    store.insert_prefix(other, kv.workspace(other), "a")
    workspace = kv.workspace(IDS[:20])
    with store.match_prefix(IDS) as match:
        assert match.load(workspace, 20) == 40
        assert all(kv.held(workspace, IDS))
        store.check_integrity()
    assert [tier.tokens for tier in store.stats().tiers] == [40, 48]
    with store.match_prefix(IDS) as match:
        workspace = kv.workspace()
        match.load(workspace)
        assert all(kv.held(workspace, IDS))


def test_a_purged_page_is_not_loaded_by_a_match_that_saw_it(kv, make_store) -> None:
    store = make_store()
    store.insert_prefix(IDS, kv.workspace(IDS), "a")
    store.insert_prefix(IDS[:16], kv.workspace(IDS), "b")
    with store.match_prefix(IDS) as match:
        assert store.purge("a") == 24
        store.check_integrity()
        assert match.load(kv.workspace(IDS), 40) == 40
        assert match.length == 16
        assert match.load(kv.workspace(IDS[:20]), 20) == 20
        workspace = kv.workspace()
        assert match.load(workspace) == 16
        assert kv.held(workspace, IDS) == [place < 16 for place in range(40)]
    store.check_integrity()


def test_a_match_is_released_by_its_with_block(kv, make_store) -> None:
    store = make_store()
    with store.match_prefix(IDS) as match:
        pass
    with pytest.raises(ReleasedMatchError, match="released"):
        match.release()

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.sessions import session_of_user, short_session
from inference.engine.slots import SAVE_BEYOND, Slot, Slots
from inference.text.token_ids import common_prefix_length, packed
from kv_store.interface import DryWorkspace
from kv_store.snapshots import Snapshots, StateSnapshot
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from protocol.messages import ANONYMOUS

PROMPT = tuple(range(100, 140))
OTHER = tuple(range(200, 240))


class Workplace:
    """Slots over a store, and how many workspaces were made for them."""

    def __init__(self, count: int, room_for: int = 100, *, kept: int | None = None, separate_users: bool = False) -> None:
        self.made = self.tried = 0
        self.room_for = room_for
        self.store = PagedStore([Tier("device", 2**20, MemoryStorage())], 4)
        kept = count if kept is None else kept
        self.slots = Slots(count, kept, self._make, self.store, context_tokens=64, separate_users=separate_users)

    def _make(self) -> DryWorkspace:
        self.tried += 1
        if self.made == self.room_for:
            raise MemoryError("no room")
        self.made += 1
        return DryWorkspace(bytes_per_token=4)

    def compute(self, token_ids: tuple[int, ...], session: str) -> int:
        """What a request does with its workspace; how many tokens it computed."""
        with self.slots.acquire(session, packed(token_ids)) as slot:
            return compute(slot, token_ids, session)


def compute(slot: Slot, ids: tuple[int, ...], session: str = "a") -> int:
    """What the engine does with a prompt; how many tokens it computed."""
    token_ids = packed(ids)
    length = slot.prepare(token_ids[:-1], session)
    assert token_ids[:length] == slot.token_ids
    slot.extend(token_ids[length:], is_prompt=True)
    return len(token_ids) - length


REQUESTS = st.tuples(
    st.sampled_from(["", "ann", "bob", "cy"]),
    st.sampled_from(["client/a", "client/b", ANONYMOUS]),
    st.lists(st.integers(0, 1), min_size=1, max_size=60),
)


def beginning(length: int, end: list[int]) -> tuple[int, ...]:
    """Prompts that begin alike, and differ in a few places."""
    return (*PROMPT[:length], *end)


@given(st.lists(REQUESTS, max_size=20), st.integers(1, 3), st.integers(0, 40))
def test_separate_users_reuse_what_they_have_sent_themselves_alone(
    requests: list[tuple[str, str, list[int]]], count: int, shared: int
) -> None:
    place = Workplace(count, separate_users=True)
    sent: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for user, session, end in requests:
        token_ids = beginning(shared, end)[:63]
        reused = len(token_ids) - place.compute(token_ids, session_of_user(user, session))
        assert reused <= max((common_prefix_length(token_ids, earlier) for earlier in sent[user]), default=0)
        sent[user].append(token_ids)
        place.store.check_integrity()


def test_separate_users_still_reuse_their_own() -> None:
    place = Workplace(1, separate_users=True)
    assert place.compute(PROMPT, "client/ann/a") == len(PROMPT)
    assert place.compute(PROMPT, "client/bob/a") == len(PROMPT)
    assert place.compute(OTHER, "client/bob/b") == len(OTHER)
    assert place.compute(PROMPT, "other client/ann/b") == 1  # of another document and client
    assert place.compute(PROMPT, "client/bob/a") == 1
    assert place.compute(PROMPT, "client/file:///a") == len(PROMPT)
    assert place.compute(PROMPT, session_of_user("", "client/ann/a")) == 1  # a document of the core's own token


@pytest.mark.parametrize("known", [0, 4, 39, 40])
def test_the_store_grows_by_the_same_whether_another_user_has_sent_the_text(known: int) -> None:
    place = Workplace(1, separate_users=True)
    place.compute((*PROMPT[:known], *OTHER[known:]), "client/bob/a")
    place.slots.save()
    before = place.store.stats().tokens
    place.compute(PROMPT, "client/ann/a")
    place.slots.save()
    assert place.store.stats().tokens - before == len(PROMPT)


def test_users_reuse_each_others_unless_separate() -> None:
    place = Workplace(1)
    place.compute(PROMPT, "client/ann/a")
    assert place.compute(PROMPT, "client/bob/a") == 1


@pytest.mark.parametrize("sessions", ["ab", [ANONYMOUS] * 2])
def test_each_session_and_each_anonymous_text_finds_its_prompt_without_a_copy(sessions: list[str]) -> None:
    place, (first, second) = Workplace(2), sessions
    place.compute(PROMPT, first)
    place.compute(OTHER, second)
    for length in range(1, 5):
        assert place.compute((*PROMPT, *range(length)), first) == 1
        assert place.compute((*OTHER, *range(length)), second) == 1
    assert (place.made, place.store.stats().tokens) == (2, 0)
    place.compute(PROMPT, "a.py")  # it is copied, and so stays with the other prompt's own workspace too
    assert place.compute((*PROMPT, 1), "a.py") == 1


def test_documents_take_turns_in_the_workspaces_that_are_kept() -> None:
    place = Workplace(2, kept=1)
    assert place.compute(PROMPT, "a") == len(PROMPT)
    for token_ids, session in ((OTHER, "b"), (PROMPT, "a"), (OTHER, "b")):
        place.compute(token_ids, session)
    assert place.compute(PROMPT, "a") == 1  # by the store
    assert (place.made, place.slots.allocated) == (1, 1)


def test_a_short_prompt_takes_the_place_of_no_whole_one_and_is_let_go_at_rest() -> None:
    place, short = Workplace(2, kept=1), short_session("me/a")
    place.compute(PROMPT, "me/a")
    place.compute(OTHER, short)
    assert (place.compute(PROMPT, "me/a"), place.compute(OTHER, short)) == (1, 1)
    assert place.slots.missing("me/a", packed(PROMPT)) == 0
    assert place.store.stats().tokens == 0  # nothing was copied
    place.compute(OTHER[::-1], short_session("me/b"))
    assert place.compute(PROMPT, "me/a") == 1
    assert place.slots.save()
    assert place.slots.allocated == 1
    place.slots.forget("me/a")
    place.slots.forget("me/b")
    assert place.store.stats().tokens == 0


def test_a_short_prompt_counts_among_none_that_documents_keep() -> None:
    place = Workplace(4, kept=2)
    place.compute(PROMPT, "me/a")
    for session in (short_session("me/b"), "me/b", short_session("me/b")):
        place.compute(OTHER, session)
    assert (place.compute(PROMPT, "me/a"), place.compute(OTHER, "me/b"), place.made) == (1, 1, 3)
    place.compute(OTHER, short_session("me/b"))
    assert place.slots.save()
    assert {each.session for each in place.slots.residents() if each.workspace} == {"me/a", "me/b"}


def test_a_workspace_that_is_not_kept_lasts_until_its_prompt_is_saved() -> None:
    place = Workplace(3, kept=1)
    with place.slots.acquire("a", packed(PROMPT)) as first, place.slots.acquire("b", packed(OTHER)) as second:
        compute(first, PROMPT, "a")
        compute(second, OTHER, "b")
        assert place.slots.save()
        assert place.slots.allocated == 2  # both are in use
    assert place.slots.allocated == 2
    assert place.slots.save()
    assert place.slots.allocated == 1
    assert (place.compute(OTHER, "b"), place.compute(PROMPT, "a")) == (1, 1)
    assert place.made == 2


def test_the_latest_workspace_of_a_session_is_reported() -> None:
    place = Workplace(2)
    place.compute(PROMPT[:5], ANONYMOUS)
    place.compute(OTHER, ANONYMOUS)
    assert [(resident.session, resident.workspace) for resident in place.slots.residents()] == [(ANONYMOUS, len(OTHER))]


def test_workspaces_are_made_when_they_are_needed() -> None:
    place = Workplace(3)
    for _ in range(3):
        place.compute(PROMPT, "a")
    assert place.made == 1
    with place.slots.acquire("a", packed()), place.slots.acquire("a", packed()):
        assert place.made == 2
    place.slots.forget("a")
    place.compute(PROMPT, "b")
    assert place.made == 2


def test_where_there_is_no_memory_the_idle_ones_are_used_and_no_more_are_tried() -> None:
    place = Workplace(5, room_for=2)
    for session in "abcd":
        place.compute(PROMPT if session in "ac" else OTHER, session)
    assert (place.made, place.tried, place.slots.count) == (2, 3, 2)


def test_where_there_is_no_memory_and_all_are_lent_the_request_is_reported() -> None:
    place = Workplace(2, room_for=1)
    with place.slots.acquire("a", packed()):
        for _ in range(2):
            with pytest.raises(MemoryError, match="1 workspaces are in use"), place.slots.acquire("b", packed()):
                pass
    assert place.compute(PROMPT, "b") == len(PROMPT)
    assert place.tried == 2


def test_the_one_used_longest_ago_gives_way_and_is_saved() -> None:
    place = Workplace(2)
    for session, token_ids in (("a", PROMPT), ("b", OTHER), ("a", PROMPT), ("c", (1, 2, 3))):
        place.compute(token_ids, session)
    assert place.store.stats().tokens == len(OTHER)
    assert place.compute(OTHER, "b") == 1


def test_sessions_with_the_same_text_share_it_through_the_store() -> None:
    place = Workplace(3)
    place.compute(PROMPT, "a")
    assert place.compute((*PROMPT, 1), "b") == 1
    with place.slots.acquire("b", packed()) as busy:
        compute(busy, (*PROMPT, 1, *OTHER), "b")
        assert place.compute((*PROMPT, 1, *OTHER, 2), "c") == 1
    place.store.check_integrity()


def test_a_few_shared_tokens_are_not_worth_a_copy() -> None:
    place = Workplace(2)
    place.compute(PROMPT, "a")
    place.compute((*PROMPT[:SAVE_BEYOND], *OTHER), "b")
    assert place.store.stats().tokens == 0


def test_forgetting_spares_what_others_use_and_who_is_at_work() -> None:
    place = Workplace(2)
    place.compute(PROMPT, "a")
    place.compute(OTHER, "b")
    place.slots.forget("a")
    assert place.compute(OTHER, "b") == 1
    with place.slots.acquire("b", packed()) as busy:
        place.slots.forget("b")
        assert compute(busy, (*OTHER, 7), "b") == 1
    assert place.compute(PROMPT, "a") == len(PROMPT)


@pytest.mark.parametrize("pattern", ["one/a", "two/a", "*/a"])
def test_forgetting_a_document_reaches_the_workspaces_of_every_client_and_nothing_is_saved_again(pattern: str) -> None:
    place = Workplace(3)
    place.compute(PROMPT, "one/a")
    place.compute(OTHER, "one/b")
    with place.slots.acquire("two/a", packed()) as busy:
        compute(busy, PROMPT, "two/a")
        place.slots.forget(pattern)
        busy.extend(packed((1, 2, 3)), is_prompt=True)
        busy.save()  # as a prefetch does
        place.slots.save()
        compute(busy, OTHER[:5], "two/a")  # which displaces what was there before
    place.slots.save()
    assert place.store.stats().tokens == len(OTHER)
    for first in range(5):
        place.compute(tuple(range(1000 * first, 1000 * first + 20)), f"one/{first}")  # which displaces everything
    with place.store.match_prefix(PROMPT) as match:
        assert match.length == 0
    assert place.compute(PROMPT, "one/a") == len(PROMPT)
    place.store.check_integrity()


def test_what_a_request_without_reuse_left_is_its_documents_too() -> None:
    place = Workplace(1)
    with place.slots.acquire("one/a", packed()) as slot:
        slot.prepare_cold("one/a")
        slot.extend(packed(PROMPT), is_prompt=False)
    place.slots.forget("*/a")
    assert not slot.token_ids


def test_a_closed_document_stays_where_it_is_until_there_is_need() -> None:
    place = Workplace(1)
    place.compute(PROMPT, "one/a")
    place.slots.save()
    assert [page.pins for page in place.store._tree.pages()] == [1, 1, 1]
    place.slots.unpin("one/a")
    assert [page.pins for page in place.store._tree.pages()] == [0, 0, 0]
    assert place.compute((*PROMPT, 1), "one/a") == 1
    assert [page.pins for page in place.store._tree.pages()] == [1, 1, 1]
    place.slots.unpin("one/a")
    place.compute(OTHER, "one/b")
    assert place.compute(PROMPT, "one/a") == 1, "it was saved like every other"
    place.store.check_integrity()


def test_saving_in_steps_takes_a_workspace_each_the_latest_first() -> None:
    place = Workplace(3)
    for session, token_ids in (("a", PROMPT), ("b", OTHER), ("c", (1, 2, 3))):
        place.compute(token_ids, session)
    for saved in (3, 3 + len(OTHER), 3 + len(OTHER) + len(PROMPT)):
        assert not place.slots.save(0)
        assert place.store.stats().tokens == saved
    assert place.slots.save(0)
    place.compute((*PROMPT[:-1], 7), "a")
    assert not place.slots.save(0), "what is new has to be saved again"


def test_a_workspace_comes_back_whatever_happens() -> None:
    place = Workplace(1)
    with pytest.raises(RuntimeError, match="boom"), place.slots.acquire("a", packed()):
        raise RuntimeError("boom")
    with ExitStack() as stack:
        stack.enter_context(place.slots.acquire("a", packed()))
    assert place.made == 1


def resident(budget_bytes: int = 2**20) -> Slot:
    workspace = DryWorkspace(bytes_per_token=4)
    return Slot(workspace, PagedStore([Tier("device", budget_bytes, MemoryStorage())], 4))


def forget(prompt: Slot, session: str) -> None:
    prompt.forget(session)
    prompt.store.purge(session)


def in_store(prompt: Slot, token_ids: tuple[int, ...]) -> int:
    with prompt.store.match_prefix(token_ids) as match:
        return match.length


def test_typing_copies_nothing_to_the_store() -> None:
    prompt = resident()
    assert compute(prompt, PROMPT) == len(PROMPT)
    assert compute(prompt, (*PROMPT, 1)) == 1
    assert compute(prompt, (*PROMPT[:-2], 7, 8, 9)) == 3
    assert prompt.store.stats().tokens == 0


def test_long_crop_saves_the_prompt_first() -> None:
    prompt = resident()
    compute(prompt, PROMPT)
    compute(prompt, (*PROMPT[: -SAVE_BEYOND - 1], 7))
    assert in_store(prompt, PROMPT) == len(PROMPT)
    assert compute(prompt, PROMPT) == 1


def test_suggestions_are_not_saved() -> None:
    prompt = resident()
    compute(prompt, PROMPT)
    prompt.extend(packed(range(50)), is_prompt=False)
    compute(prompt, (*PROMPT, 7))
    assert prompt.store.stats().tokens == 0
    prompt.crop(0)
    assert prompt.store.stats().tokens == len(PROMPT) + 1


def test_other_session_is_saved_under_its_own_name() -> None:
    prompt = resident()
    compute(prompt, PROMPT, "a")
    compute(prompt, (*PROMPT[:20], 7), "b")
    assert compute(prompt, PROMPT, "a") == 1
    forget(prompt, "b")
    assert in_store(prompt, PROMPT) == len(PROMPT)
    forget(prompt, "a")
    assert prompt.store.stats().tokens == 0
    assert compute(prompt, PROMPT, "a") == len(PROMPT)
    prompt.store.check_integrity()


def recurrent(positions: tuple[int, ...] = ()) -> Slot:
    """A slot of a model with recurrent layers, whose forwards end at these positions."""
    snapshots = Snapshots(2**20)
    for position in positions:
        snapshots.put(position, StateSnapshot(position, 1))
    return Slot(DryWorkspace(4, snapshots), PagedStore([Tier("device", 2**20, MemoryStorage())], 4))


def test_a_recurrent_model_goes_on_where_a_snapshot_is() -> None:
    slot = recurrent((10, 30, 40))
    compute(slot, PROMPT)
    assert compute(slot, (*PROMPT, 1)) == 1
    assert compute(slot, (*PROMPT[:35], 7)) == 6  # five more than with keys and values alone


def test_a_refused_draft_takes_a_recurrent_model_back_to_the_forward_before() -> None:
    slot = recurrent((40, 48))
    compute(slot, PROMPT)
    slot.extend(packed((1,)), False, packed((2, 3)))  # of a forward up to 48
    assert slot.token_ids == packed(PROMPT)
    slot.extend(packed((1,)), False, packed(range(2, 9)))
    assert len(slot.token_ids) == 48


def test_slots_of_a_recurrent_model_are_compared_by_where_it_goes_on() -> None:
    slot = recurrent((10, 40))
    compute(slot, PROMPT)
    assert slot.reusable(packed(PROMPT[:39])) == 10


def test_what_is_forgotten_leaves_no_snapshot() -> None:
    slot = recurrent((10, 40))
    compute(slot, PROMPT)
    slot.forget("a")
    assert (slot.token_ids, slot.workspace.resumable(40)) == (packed(), 0)

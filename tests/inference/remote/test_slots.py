"""Places keep sessions apart and lose none, whatever is acquired, released, unpinned and forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.remote.slots import TOLERANCE_TOKENS, RemoteSlot, RemoteSlots
from inference.text.token_ids import packed
from protocol.messages import ANONYMOUS

SESSIONS = st.sampled_from(["me/a", "me/b", "you/a", "me/c", ANONYMOUS])
PROMPTS = st.lists(st.integers(0, 2), max_size=40)
ACTIONS = st.lists(st.tuples(st.sampled_from(["acquire", "release", "unpin", "forget"]), SESSIONS, PROMPTS))


@given(ACTIONS, st.sampled_from([None, 1, 2, 3]))
def test_every_place_is_idle_or_lent_once(actions: list[tuple[str, str, list[int]]], slots: int | None) -> None:
    places = RemoteSlots(slots)
    used: list[RemoteSlot] = []
    for action, session, prompt in actions:
        if action == "acquire" and (slots is None or len(used) < slots):
            place = places.acquire(session, packed(prompt))
            assert place not in used
            assert place.session == session
            used.append(place)
        elif action == "release" and used:
            place = used.pop(0)
            forgotten = place.dropped_on_release
            assert places.release(place, packed(prompt)) == forgotten
            assert place.token_ids == packed([] if forgotten else prompt)
        elif action == "unpin":
            places.unpin(session)
        elif action == "forget":
            assert not set(map(id, places.forget(session))) & set(map(id, used))
        everything = (*places._idle, *places._in_use)
        assert len(set(map(id, everything))) == len(everything)
        if slots is not None:
            assert sorted(place.number or 0 for place in everything) == list(range(slots))


@given(PROMPTS, PROMPTS)
def test_a_session_gets_its_last_place(first: list[int], second: list[int]) -> None:
    places = RemoteSlots(3)
    for session in ("me/a", "me/b"):
        places.release(places.acquire(session, packed(first)), packed(first))
    place = places.acquire("me/a", packed(second))
    assert (place.number, place.token_ids) == (0, packed(first))


def test_forgotten_documents_leave_no_tokens() -> None:
    places = RemoteSlots(3)
    for session in ("me/a", "you/a", "me/b"):
        places.release(places.acquire(session, packed([1])), packed([1] * 5))
    used = places.acquire("you/a", packed([1]))
    assert [place.number for place in places.forget("they/a")] == [0]
    assert places.release(used, packed([1] * 9))
    assert places.resident_tokens == 5  # those of `b`


def test_a_slot_is_foreign_until_the_users_own_prompt_is_computed() -> None:
    places = RemoteSlots(1)
    ann = places.acquire("me/ann/a", packed([1]))
    assert ann.is_foreign  # what it has is unknown
    places.release(ann, packed())
    assert places.acquire("me/ann/a", packed([1])).is_foreign  # cancelled before the server had it
    places.release(ann, packed([1]))
    assert not places.acquire("me/ann/a", packed([1])).is_foreign
    places.release(ann, packed([1]))
    assert places.acquire("me/bob/a", packed([1])).is_foreign


def test_a_prompt_without_a_slot_makes_every_slot_foreign() -> None:
    places = RemoteSlots(1)
    bob = places.acquire("me/bob/a", packed([1]))
    waiting = places.acquire("me/ann/a", packed([1]))
    assert waiting.is_foreign
    places.release(bob, packed([1]))
    assert bob.is_foreign  # the other prompt may run in this slot now
    places.release(waiting, packed([1]))
    assert places.acquire("me/bob/a", packed([1])).is_foreign


def test_few_missing_tokens_are_no_loss() -> None:
    places = RemoteSlots(1)
    assert not places.note_cached(TOLERANCE_TOKENS, 0)
    assert places.lost_tokens == 0
    assert not places.note_cached(TOLERANCE_TOKENS + 6, 5)
    assert places.note_cached(TOLERANCE_TOKENS + 6, 0)
    assert (places.requests_with_losses, places.lost_tokens) == (2, 2 * TOLERANCE_TOKENS + 7)

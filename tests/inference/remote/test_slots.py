"""Places keep sessions apart and lose none, whatever is lent, given back, released and forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.remote.slots import TOLERANCE_TOKENS, RemoteSlot, RemoteSlots
from inference.text.token_ids import packed
from protocol.messages import ANONYMOUS

SESSIONS = st.sampled_from(["me/a", "me/b", "you/a", "me/c", ANONYMOUS])
PROMPTS = st.lists(st.integers(0, 2), max_size=40)
ACTIONS = st.lists(st.tuples(st.sampled_from(["lend", "give back", "release", "forget"]), SESSIONS, PROMPTS))


@given(ACTIONS, st.sampled_from([None, 1, 2, 3]))
def test_every_place_is_idle_or_lent_once(actions: list[tuple[str, str, list[int]]], slots: int | None) -> None:
    places = RemoteSlots(slots)
    lent: list[RemoteSlot] = []
    for action, session, prompt in actions:
        if action == "lend" and (slots is None or len(lent) < slots):
            place = places.lend(session, packed(prompt))
            assert place not in lent
            assert place.session == session
            lent.append(place)
        elif action == "give back" and lent:
            place = lent.pop(0)
            doomed = place.is_doomed
            assert places.give_back(place, packed(prompt)) == doomed
            assert place.token_ids == packed([] if doomed else prompt)
        elif action == "release":
            places.release(session)
        elif action == "forget":
            assert not set(map(id, places.forget(session))) & set(map(id, lent))
        everything = (*places._idle, *places._lent)
        assert len(set(map(id, everything))) == len(everything)
        if slots is not None:
            assert sorted(place.number or 0 for place in everything) == list(range(slots))


@given(PROMPTS, PROMPTS)
def test_a_session_gets_its_last_place(first: list[int], second: list[int]) -> None:
    places = RemoteSlots(3)
    for session in ("me/a", "me/b"):
        places.give_back(places.lend(session, packed(first)), packed(first))
    place = places.lend("me/a", packed(second))
    assert (place.number, place.token_ids) == (0, packed(first))


def test_forgotten_documents_leave_no_tokens() -> None:
    places = RemoteSlots(3)
    for session in ("me/a", "you/a", "me/b"):
        places.give_back(places.lend(session, packed([1])), packed([1] * 5))
    lent = places.lend("you/a", packed([1]))
    assert [place.number for place in places.forget("they/a")] == [0]
    assert places.give_back(lent, packed([1] * 9))
    assert places.resident_tokens == 5  # those of `b`


def test_a_slot_is_foreign_until_the_users_own_prompt_is_computed() -> None:
    places = RemoteSlots(1)
    ann = places.lend("me/ann/a", packed([1]))
    assert ann.is_foreign  # what it has is unknown
    places.give_back(ann, packed())
    assert places.lend("me/ann/a", packed([1])).is_foreign  # cancelled before the server had it
    places.give_back(ann, packed([1]))
    assert not places.lend("me/ann/a", packed([1])).is_foreign
    places.give_back(ann, packed([1]))
    assert places.lend("me/bob/a", packed([1])).is_foreign


def test_a_prompt_without_a_slot_makes_every_slot_foreign() -> None:
    places = RemoteSlots(1)
    bob = places.lend("me/bob/a", packed([1]))
    waiting = places.lend("me/ann/a", packed([1]))
    assert waiting.is_foreign
    places.give_back(bob, packed([1]))
    assert bob.is_foreign  # the other prompt may run in this slot now
    places.give_back(waiting, packed([1]))
    assert places.lend("me/bob/a", packed([1])).is_foreign


def test_few_missing_tokens_are_no_loss() -> None:
    places = RemoteSlots(1)
    assert not places.note_cached(TOLERANCE_TOKENS, 0)
    assert places.lost_tokens == 0
    assert not places.note_cached(TOLERANCE_TOKENS + 6, 5)
    assert places.note_cached(TOLERANCE_TOKENS + 6, 0)
    assert (places.requests_with_losses, places.lost_tokens) == (2, 2 * TOLERANCE_TOKENS + 7)

"""Slots at a server keep sessions apart and lose none, whatever is acquired, released, unpinned and forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.engine.sessions import session_key
from inference.remote.slots import TOLERANCE_TOKENS, RemoteSlot, RemoteSlots
from inference.text.token_ids import packed
from kv_store.interface import SessionKey
from protocol.messages import ANONYMOUS

SESSIONS = st.sampled_from([*map(session_key, ("me/a", "me/b", "you/a", "me/c", ANONYMOUS))])
PROMPTS = st.lists(st.integers(0, 2), max_size=40)
ACTIONS = st.lists(st.tuples(st.sampled_from(["acquire", "release", "unpin", "forget"]), SESSIONS, PROMPTS))


@given(ACTIONS, st.sampled_from([None, 1, 2, 3]))
def test_every_slot_is_idle_or_in_use_once(actions: list[tuple[str, SessionKey, list[int]]], count: int | None) -> None:
    slots = RemoteSlots(count)
    used: list[RemoteSlot] = []
    for action, session, prompt in actions:
        if action == "acquire" and (count is None or len(used) < count):
            slot = slots.acquire(session, packed(prompt))
            assert slot not in used
            assert slot.session == session
            used.append(slot)
        elif action == "release" and used:
            slot = used.pop(0)
            forgotten = slot.dropped_on_release
            assert slots.release(slot, packed(prompt)) == forgotten
            assert slot.token_ids == packed([] if forgotten else prompt)
        elif action == "unpin":
            slots.unpin(session)
        elif action == "forget":
            assert not set(map(id, slots.forget(session.document))) & set(map(id, used))
        everything = (*slots._idle, *slots._in_use)
        assert len(set(map(id, everything))) == len(everything)
        if count is not None:
            assert sorted(slot.number or 0 for slot in everything) == list(range(count))


@given(PROMPTS, PROMPTS)
def test_a_session_gets_its_last_slot(first: list[int], second: list[int]) -> None:
    slots = RemoteSlots(3)
    for session in map(session_key, ("me/a", "me/b")):
        slots.release(slots.acquire(session, packed(first)), packed(first))
    slot = slots.acquire(session_key("me/a"), packed(second))
    assert (slot.number, slot.token_ids) == (0, packed(first))


def test_forgotten_documents_leave_no_tokens() -> None:
    slots = RemoteSlots(3)
    for session in map(session_key, ("me/a", "you/a", "me/b")):
        slots.release(slots.acquire(session, packed([1])), packed([1] * 5))
    used = slots.acquire(session_key("you/a"), packed([1]))
    assert [slot.number for slot in slots.forget("a")] == [0]
    assert slots.release(used, packed([1] * 9))
    assert slots.resident_tokens == 5  # those of `b`


def test_few_missing_tokens_are_no_loss() -> None:
    slots = RemoteSlots(1)
    assert not slots.note_cached(TOLERANCE_TOKENS, 0)
    assert slots.lost_tokens == 0
    assert not slots.note_cached(TOLERANCE_TOKENS + 6, 5)
    assert slots.note_cached(TOLERANCE_TOKENS + 6, 0)
    assert (slots.requests_with_losses, slots.lost_tokens) == (2, 2 * TOLERANCE_TOKENS + 7)

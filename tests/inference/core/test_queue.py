"""What waits for the model thread, whose turn it is, and what gives way."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.core.queue import MAX_CHORES, MAX_WAITING, MAX_WAITING_CHARS, Inbox, RequestQueue
from inference.engine.request import Request
from protocol.errors import Busy
from protocol.messages import Completion, CompletionRequest, Prompt, Snippet, Usage


def ask(session: str, prefetch: bool = False, client: str = "client", text: str = "", **changes: int) -> Request:
    return Request(CompletionRequest(session, Prompt(text, ""), max_tokens=0 if prefetch else 1, **changes), client)


def take_all(queue: RequestQueue) -> list[Request]:
    return list(iter(lambda: queue.take({}), None))


def test_sessions_are_served_in_the_order_in_which_they_began_to_wait() -> None:
    queue = RequestQueue()
    first, second, newer = ask("a"), ask("b"), ask("a")
    assert queue.put(first) is None
    assert queue.put(second) is None
    assert queue.put(newer) is first
    assert take_all(queue) == [newer, second]


def test_a_prefetch_comes_last() -> None:
    queue = RequestQueue()
    prefetch, real = ask("a", prefetch=True), ask("b")
    queue.put(prefetch)
    assert queue.first({}, with_prefetches=False) is None
    queue.put(real)
    assert take_all(queue) == [real, prefetch]


def test_clients_take_turns() -> None:
    queue = RequestQueue()
    flood = [ask(f"{number}", client="flood") for number in range(4)]
    other = [ask(f"{number}", client="other") for number in range(2)]
    for waiting in (*flood, *other):
        queue.put(waiting)
    assert take_all(queue) == [flood[0], other[0], flood[1], other[1], flood[2], flood[3]]


def test_a_user_who_types_on_keeps_the_turn() -> None:
    queue = RequestQueue()
    typing, paused, newer = ask("a", client="types"), ask("b", client="paused"), ask("a", client="types")
    for waiting in (typing, paused, newer):
        queue.put(waiting)
    assert take_all(queue) == [newer, paused]


@pytest.mark.parametrize("several", [{"alternatives": 2}, {"best_of": 2}])
def test_client_with_the_fewest_requests_at_work_comes_first_and_alternatives_last_among_equals(several: dict[str, int]) -> None:
    queue = RequestQueue()
    busy, alternatives, plain = ask("a", client="busy"), ask("b", client="b", **several), ask("c", client="c")
    for waiting in (busy, alternatives, plain):
        queue.put(waiting)
    at_work = {"busy": 1}
    assert [queue.take(at_work) for _ in range(3)] == [plain, alternatives, busy]


def test_line_of_a_client_is_bounded() -> None:
    queue = RequestQueue()
    for number in range(MAX_WAITING):
        queue.put(ask(f"{number}"))
    with pytest.raises(Busy, match=f"{MAX_WAITING} requests already wait"):
        queue.put(ask("one more"))
    newer = ask("0")
    assert queue.put(newer) is not None  # it takes the older one's place
    queue.put(ask("other", client="other"))
    assert len(list(queue)) == MAX_WAITING + 1
    assert queue.take({}) is newer


def test_a_prefetch_that_waits_keeps_no_suggestion_out() -> None:
    queue = RequestQueue()
    for number in range(MAX_WAITING):
        queue.put(ask(f"{number}", prefetch=True))
    with pytest.raises(Busy, match=f"{MAX_WAITING} requests already wait"):
        queue.put(ask("one more", prefetch=True))
    suggestion = ask("suggestion")
    queue.put(suggestion)
    assert queue.take({}) is suggestion


def test_text_that_waits_is_bounded() -> None:
    queue = RequestQueue()
    text = "x" * (MAX_WAITING_CHARS // 2 + 1)
    queue.put(ask("a", text=text))
    with pytest.raises(Busy, match="characters"):
        queue.put(ask("b", text=text))
    queue.put(ask("a", text=text))
    files = CompletionRequest("c", Prompt("", "", context=(Snippet(text, ""),)), max_tokens=1, stop_texts=(text,))
    with pytest.raises(Busy, match="characters"):
        queue.put(Request(files, "client"))
    queue.put(ask("b", text="x"))


def test_what_gave_way_comes_back_unless_there_is_a_newer_one() -> None:
    queue = RequestQueue()
    prefetch = ask("a", prefetch=True)
    assert queue.put_back(prefetch)
    queue.take({})
    newer = ask("a")
    queue.put(newer)
    assert not queue.put_back(prefetch)
    assert queue.clear() == [newer]


def test_the_request_that_is_meant_is_removed() -> None:
    queue = RequestQueue()
    one, two = ask("a"), ask("b")
    queue.put(one)
    queue.put(two)
    assert queue.remove(lambda waiting: waiting is two) is two
    assert queue.remove(lambda waiting: waiting is two) is None
    assert take_all(queue) == [one]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20))
def test_every_request_leaves_exactly_once(arrivals: list[tuple[str, bool]]) -> None:
    queue = RequestQueue()
    requests = [ask(session, prefetch) for session, prefetch in arrivals]
    superseded = [gone for gone in map(queue.put, requests) if gone is not None]
    served = take_all(queue)
    assert sorted(map(id, superseded + served)) == sorted(map(id, requests))
    assert [each.is_prefetch for each in served] == sorted(each.is_prefetch for each in served)


USAGE = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


def ask_by(session: str, user: str) -> Request:
    return Request(CompletionRequest(session, Prompt("", ""), max_tokens=1), "client", user)


def full_inbox(*at_work: Request) -> Inbox:
    inbox = Inbox(lambda: len(at_work), lambda: None)
    for each in at_work:
        inbox.put(each)
        assert inbox.take() is each
    return inbox


def test_a_newer_request_takes_the_place_of_the_one_that_it_cancels() -> None:
    others = [ask_by(session, "other") for session in ("a", "b", "c")]
    older, newer = ask_by("d", "typing"), ask_by("d", "typing")
    inbox = full_inbox(*others, older)
    inbox.put(newer)
    assert older.cancelled
    assert not any(each.gives_way for each in others)
    older.outcome = Completion("", "cancelled", USAGE)
    assert inbox.end(older)
    assert inbox.take() is newer


def test_a_user_with_two_more_at_work_gives_way() -> None:
    others = [ask_by(session, "other") for session in ("a", "b", "c")]
    inbox = full_inbox(*others)
    inbox.put(ask_by("d", "typing"))
    assert [each.gives_way for each in others] == [False, False, True]
    equals = [ask_by(user, user) for user in ("ann", "bob", "cy")]
    full_inbox(*equals).put(ask_by("dan", "dan"))
    assert not any(each.gives_way for each in equals)


def test_a_users_newest_prefetch_is_alone_at_work() -> None:
    older, newer = (Request(CompletionRequest(name, Prompt("", ""), max_tokens=0), "client", "me") for name in "ab")
    inbox = Inbox(lambda: 4, lambda: None)
    inbox.put(older)
    assert inbox.take() is older
    inbox.put(newer)
    assert older.gives_way
    assert inbox.take() is None
    older.outcome = Completion("", "cancelled", USAGE)
    assert not inbox.end(older)
    assert inbox.take() is newer
    assert inbox.take() is None
    newer.outcome = Completion("", "length", USAGE)
    assert inbox.end(newer)
    assert inbox.take() is older


def test_users_take_turns_at_chores_and_equal_ones_wait_once() -> None:
    inbox, done = Inbox(lambda: 1, lambda: None), list[str]()
    for name in ("a1", "a2", "a1", "a3", "b1", "b2"):
        inbox.add(partial(done.append, name), name, turn=name[0])
    while (chore := inbox.take_chore()) is not None:
        chore()
    assert done == ["a1", "b1", "a2", "b2", "a3"]


def test_a_user_has_so_many_chores_and_others_have_theirs() -> None:
    inbox = Inbox(lambda: 1, lambda: None)
    for number in range(MAX_CHORES):
        inbox.add(list, number, "ann")
    with pytest.raises(Busy, match=f"{MAX_CHORES} documents of this user already wait"):
        inbox.add(list, MAX_CHORES, "ann")
    inbox.add(list, 0, "ann")  # it waits already
    inbox.add(list, 0, "bob")
    assert inbox.take_chore() is not None
    inbox.add(list, MAX_CHORES, "ann")


def test_a_chore_that_waits_for_the_end_of_work_lets_no_request_begin_before_it() -> None:
    busy, next_one = ask_by("a", "typing"), ask_by("b", "typing")
    done = list[str]()
    inbox = Inbox(lambda: 2, lambda: None)
    for request in (busy, next_one):
        inbox.put(request)
    assert inbox.take() is busy
    for _ in range(2):
        inbox.add_when_idle(partial(done.append, "freed"), "free")
    assert inbox.take() is None
    assert inbox.take_chores_when_idle() == []
    busy.outcome = Completion("x", "eos", USAGE)
    assert inbox.end(busy)
    for chore in inbox.take_chores_when_idle():
        chore()
    assert done == ["freed"]
    assert inbox.take() is next_one

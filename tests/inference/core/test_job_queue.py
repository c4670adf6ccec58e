from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.core.queue import MAX_WAITING, MAX_WAITING_CHARS, RequestQueue
from inference.engine.request import Request
from protocol.errors import Busy
from protocol.messages import CompletionRequest, Prompt, Snippet


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

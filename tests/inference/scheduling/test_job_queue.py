from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.scheduling.job_queue import MAX_WAITING_CHARS, NEW_TEXT_CHARS, Job, JobQueue
from inference.scheduling.user_limits import MAX_WAITING, UserLimits
from protocol.errors import Busy
from protocol.messages import CompletionRequest, Prompt, Snippet

ids = itertools.count(1)


def job(session: str, ahead: bool = False, client: str = "client", text: str = "", **changes: int) -> Job:
    request = CompletionRequest(session, Prompt(text, ""), max_tokens=0 if ahead else 1, **changes)
    return Job(next(ids), (client, session), request, on_done=lambda answer: None)


def take_all(queue: JobQueue) -> list[Job]:
    return list(iter(lambda: queue.take({}), None))


def test_sessions_are_served_in_the_order_in_which_they_began_to_wait() -> None:
    queue = JobQueue()
    first, second, newer = job("a"), job("b"), job("a")
    assert queue.put(first) is None
    assert queue.put(second) is None
    assert queue.put(newer) is first
    assert take_all(queue) == [newer, second]


def test_ahead_work_comes_last() -> None:
    queue = JobQueue()
    ahead, real = job("a", ahead=True), job("b")
    queue.put(ahead)
    assert queue.first({}, ahead_too=False) is None
    queue.put(real)
    assert take_all(queue) == [real, ahead]


def test_clients_take_turns() -> None:
    queue = JobQueue()
    flood = [job(f"{number}", client="flood") for number in range(4)]
    other = [job(f"{number}", client="other") for number in range(2)]
    for waiting in (*flood, *other):
        queue.put(waiting)
    assert take_all(queue) == [flood[0], other[0], flood[1], other[1], flood[2], flood[3]]


def test_a_user_who_has_paused_comes_before_one_who_types_on() -> None:
    queue = JobQueue()
    typing, paused, newer = job("a", client="types"), job("b", client="paused"), job("a", client="types")
    for waiting in (typing, paused, newer):
        queue.put(waiting)
    assert take_all(queue) == [paused, newer]


def test_a_resident_prompt_comes_before_a_new_one_until_that_has_waited_for_what_it_costs() -> None:
    queue, now = JobQueue(), time.perf_counter()
    new, resident = job("new", client="jumped", text="x" * NEW_TEXT_CHARS), job("resident", client="types", text="y")
    queue.answered(job("resident", client="types", text="y"))
    for waiting in (new, resident):
        queue.put(waiting)
    new.submitted, resident.unanswered_since = now - 10, now - 6
    assert queue.first({}, ahead_too=False) is resident
    new.submitted = now - 14
    assert queue.first({}, ahead_too=False) is new


def test_a_user_who_types_on_behind_a_resident_prompt_waits_since_the_first_key() -> None:
    queue, now = JobQueue(), time.perf_counter()
    first, paused, newer = job("a", client="types"), job("b", client="paused"), job("a", client="types")
    queue.answered(job("a", client="types"))
    first.unanswered_since, paused.submitted = now - 3, now - 2
    for waiting in (first, paused, newer):
        queue.put(waiting)
    assert queue.first({}, ahead_too=False) is newer


def test_a_resident_prompt_is_known_by_its_text_and_its_user() -> None:
    queue, now = JobQueue(), time.perf_counter()
    same, others = job("#2", client="http", text="x" * 9000), job("#3", client="stranger", text="x" * 9000)
    queue.answered(job("#1", client="http", text="x" * 9000))
    for waiting in (others, same):
        waiting.submitted = waiting.unanswered_since = now - 1
        queue.put(waiting)
    assert queue.first({}, ahead_too=False) is same
    queue.forget_answers()
    others.submitted = now - 2
    assert queue.first({}, ahead_too=False) is others


def test_a_key_does_not_wait_since_ahead_work_did() -> None:
    queue = JobQueue()
    ahead, key = job("a", ahead=True), job("a")
    ahead.unanswered_since -= 100
    queue.put(ahead)
    queue.put(key)
    assert key.unanswered_since > ahead.unanswered_since + 99


def test_a_prompt_with_another_prefix_is_not_resident() -> None:
    queue, now = JobQueue(), time.perf_counter()
    moved, other = job("a", client="moved", text="elsewhere" * 100), job("b", client="other", text="short")
    queue.answered(job("a", client="moved", text="here" * 100))
    for waiting in (moved, other):
        waiting.submitted = now - 1
        queue.put(waiting)
    assert queue.first({}, ahead_too=False) is other


@pytest.mark.parametrize("several", [{"alternatives": 2}, {"best_of": 2}])
def test_client_with_the_fewest_requests_at_work_comes_first_and_alternatives_last_among_equals(
    several: dict[str, int],
) -> None:
    queue = JobQueue()
    busy, alternatives, plain = job("a", client="busy"), job("b", client="b", **several), job("c", client="c")
    for waiting in (busy, alternatives, plain):
        queue.put(waiting)
    at_work = {"busy": 1}
    assert [queue.take(at_work) for _ in range(3)] == [plain, alternatives, busy]


def test_line_of_a_client_is_bounded() -> None:
    queue = JobQueue()
    for number in range(MAX_WAITING):
        queue.put(job(f"{number}"))
    with pytest.raises(Busy, match=f"{MAX_WAITING} requests already wait"):
        queue.put(job("one more"))
    newer = job("0")
    assert queue.put(newer) is not None  # it takes the older one's place
    queue.put(job("other", client="other"))
    assert len(queue) == MAX_WAITING + 1
    assert queue.take({}) is newer


def test_ahead_work_that_waits_keeps_no_suggestion_out() -> None:
    queue = JobQueue()
    for number in range(MAX_WAITING):
        queue.put(job(f"{number}", ahead=True))
    with pytest.raises(Busy, match=f"{MAX_WAITING} requests already wait"):
        queue.put(job("one more", ahead=True))
    suggestion = job("suggestion")
    queue.put(suggestion)
    assert queue.take({}) is suggestion


def test_a_user_with_as_many_at_work_as_allowed_waits() -> None:
    queue = JobQueue(UserLimits(requests=2, waiting=1))
    first, other = job("a", client="busy"), job("b", client="free")
    queue.put(first)
    with pytest.raises(Busy, match="1 requests already wait"):
        queue.put(job("c", client="busy"))
    assert queue.take({"busy": 2}) is None
    queue.put(other)
    assert queue.take({"busy": 2}) is other
    assert queue.take({"busy": 1}) is first


def test_text_that_waits_is_bounded() -> None:
    queue = JobQueue()
    text = "x" * (MAX_WAITING_CHARS // 2 + 1)
    queue.put(job("a", text=text))
    with pytest.raises(Busy, match="characters"):
        queue.put(job("b", text=text))
    queue.put(job("a", text=text))
    files = CompletionRequest("c", Prompt("", "", context=(Snippet(text, ""),)), max_tokens=1, stop_texts=(text,))
    with pytest.raises(Busy, match="characters"):
        queue.put(Job(0, ("client", "c"), files, lambda _: None))
    queue.put(job("b", text="x"))


def test_what_gave_way_comes_back_unless_there_is_a_newer_one() -> None:
    queue = JobQueue()
    ahead = job("a", ahead=True)
    assert queue.put_back(ahead)
    queue.take({})
    newer = job("a")
    queue.put(newer)
    assert not queue.put_back(ahead)
    assert queue.clear() == [newer]


def test_the_job_that_is_meant_is_removed() -> None:
    queue = JobQueue()
    one, two = job("a"), job("b")
    queue.put(one)
    queue.put(two)
    assert queue.remove(lambda waiting: waiting.id == two.id) is two
    assert queue.remove(lambda waiting: waiting.id == two.id) is None
    assert take_all(queue) == [one]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20))
def test_every_job_leaves_exactly_once(arrivals: list[tuple[str, bool]]) -> None:
    queue = JobQueue()
    jobs = [job(session, ahead) for session, ahead in arrivals]
    superseded = [gone for gone in map(queue.put, jobs) if gone is not None]
    served = take_all(queue)
    assert sorted(job.id for job in superseded + served) == [job.id for job in jobs]
    assert [job.is_ahead_work for job in served] == sorted(job.is_ahead_work for job in served)

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from inference.job_queue import Job, JobQueue
from protocol.messages import CompletionRequest, Prompt

ids = itertools.count(1)


def job(session: str, ahead: bool = False) -> Job:
    request = CompletionRequest(session, Prompt("", ""), max_tokens=0 if ahead else 1)
    return Job(next(ids), ("client", session), request, on_done=lambda answer: None)


def test_sessions_are_served_in_the_order_in_which_they_began_to_wait() -> None:
    queue = JobQueue()
    first, second, newer = job("a"), job("b"), job("a")
    assert queue.put(first) is None
    assert queue.put(second) is None
    assert queue.put(newer) is first
    assert [queue.take(), queue.take(), queue.take()] == [newer, second, None]


def test_ahead_work_comes_last() -> None:
    queue = JobQueue()
    ahead, real = job("a", ahead=True), job("b")
    queue.put(ahead)
    assert not queue.somebody_waits
    queue.put(real)
    assert queue.somebody_waits
    assert [queue.take(), queue.take()] == [real, ahead]


def test_what_gave_way_comes_back_unless_there_is_a_newer_one() -> None:
    queue = JobQueue()
    ahead = job("a", ahead=True)
    assert queue.put_back(ahead)
    queue.take()
    newer = job("a")
    queue.put(newer)
    assert not queue.put_back(ahead)
    assert queue.clear() == [newer]


def test_jobs_are_found_by_id_and_by_session() -> None:
    queue = JobQueue()
    one, two = job("a"), job("b")
    queue.put(one)
    queue.put(two)
    assert queue.remove(one.id) is one
    assert queue.remove(one.id) is None
    assert queue.withdraw(two.key) is two
    assert queue.withdraw(two.key) is None
    assert len(queue) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20))
def test_every_job_leaves_exactly_once(arrivals: list[tuple[str, bool]]) -> None:
    queue = JobQueue()
    jobs = [job(session, ahead) for session, ahead in arrivals]
    superseded = [gone for gone in map(queue.put, jobs) if gone is not None]
    served = list(iter(queue.take, None))
    assert sorted(job.id for job in superseded + served) == [job.id for job in jobs]
    assert [job.is_ahead_work for job in served] == sorted(job.is_ahead_work for job in served)

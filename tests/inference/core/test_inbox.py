"""What waits for the model thread, and what gives way to it."""

from __future__ import annotations

from functools import partial

from inference.core.queue import Inbox
from inference.engine.request import Request
from protocol.messages import Completion, CompletionRequest, Prompt, Usage

USAGE = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


def ask(session: str, user: str) -> Request:
    return Request(CompletionRequest(session, Prompt("", ""), max_tokens=1), "client", user)


def full_inbox(*at_work: Request) -> Inbox:
    inbox = Inbox(lambda: len(at_work), lambda: None)
    for each in at_work:
        inbox.put(each)
        assert inbox.take() is each
    return inbox


def test_a_newer_request_takes_the_place_of_the_one_that_it_cancels() -> None:
    others = [ask(session, "other") for session in ("a", "b", "c")]
    older, newer = ask("d", "typing"), ask("d", "typing")
    inbox = full_inbox(*others, older)
    inbox.put(newer)
    assert older.cancelled
    assert not any(each.gives_way for each in others)
    older.outcome = Completion("", "cancelled", USAGE)
    assert inbox.end(older)
    assert inbox.take() is newer


def test_a_user_with_two_more_at_work_gives_way() -> None:
    others = [ask(session, "other") for session in ("a", "b", "c")]
    inbox = full_inbox(*others)
    inbox.put(ask("d", "typing"))
    assert [each.gives_way for each in others] == [False, False, True]


def test_a_chore_of_a_name_waits_once() -> None:
    inbox, done = Inbox(lambda: 1, lambda: None), list[str]()
    for document in ("a", "b", "a", "a"):
        inbox.add(partial(done.append, document), ("release", document))
        inbox.add(partial(done.append, f"{document} at rest"), ("release", document), when_idle=True)
    for when_idle in (False, True, False):
        for chore in inbox.take_chores(when_idle=when_idle):
            chore()
    assert done == ["a", "b", "a at rest", "b at rest"]


def test_equal_chores_wait_once_and_others_each() -> None:
    inbox, done = Inbox(lambda: 1, lambda: None), list[int]()
    for _ in range(2):
        inbox.add(done.clear)
        inbox.add(partial(done.append, 1))
    assert len(inbox.take_chores(when_idle=False)) == 3


def test_a_chore_that_waits_for_the_end_of_work_lets_no_request_begin_before_it() -> None:
    busy, next_one = ask("a", "typing"), ask("b", "typing")
    done = list[str]()
    inbox = Inbox(lambda: 2, lambda: None)
    for request in (busy, next_one):
        inbox.put(request)
    assert inbox.take() is busy
    inbox.add(partial(done.append, "freed"), when_idle=True)
    assert inbox.take() is None
    assert inbox.take_chores(when_idle=True) == []
    busy.outcome = Completion("x", "eos", USAGE)
    assert inbox.end(busy)
    for chore in inbox.take_chores(when_idle=True):
        chore()
    assert done == ["freed"]
    assert inbox.take() is next_one

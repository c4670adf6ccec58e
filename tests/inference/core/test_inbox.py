"""What waits for the model thread, and what gives way to it."""

from __future__ import annotations

from functools import partial

import pytest

from inference.core.queue import MAX_CHORES, Inbox
from inference.engine.request import Request
from protocol.errors import Busy
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
    equals = [ask(user, user) for user in ("ann", "bob", "cy")]
    full_inbox(*equals).put(ask("dan", "dan"))
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
    busy, next_one = ask("a", "typing"), ask("b", "typing")
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

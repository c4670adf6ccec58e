"""Waiting for a rest only where it saves something."""

from __future__ import annotations

import itertools

from lsp_server.suggesting.editing_session import Pace


def typing(interval_s: float, answer_ms: float, limit_ms: int = 100) -> float:
    """The pause before the third key, where keys come at an interval, and answers after some milliseconds."""
    times = itertools.count(0.0, interval_s)
    pace = Pace(lambda: next(times))
    for _ in range(3):
        pause = pace.pause_s(limit_ms)
        pace.answered(answer_ms)
    return pause


def test_a_core_that_keeps_up_is_asked_at_once() -> None:
    assert typing(0.15, answer_ms=40) == 0.0


def test_a_slower_one_after_a_rest_as_long_as_an_answer_takes_within_the_limit() -> None:
    assert typing(0.05, answer_ms=80) == 0.08
    assert typing(0.05, answer_ms=500) == 0.1
    assert typing(0.05, answer_ms=500, limit_ms=0) == 0.0


def test_the_first_key_never_waits() -> None:
    assert Pace().pause_s(100) == 0.0


def test_rests_do_not_count_as_typing() -> None:
    assert typing(5.0, answer_ms=500) == 0.0

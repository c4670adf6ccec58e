"""The figures of a replay."""

from __future__ import annotations

import pytest

from midfill.replay.results import Record, ReplayResult, Savings, StrategyResult, percentile, savings_of, summary
from midfill.replay.trace import Patch, Trace, play


def typed(text: str) -> Trace:
    return Trace("test", "", None, tuple((Patch(place, 0, character),) for place, character in enumerate(text)))


def test_percentiles_are_values_that_occurred() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1, 50, 95, 99, 100]
    assert percentile([], 0.5) == 0.0


@pytest.mark.parametrize(
    ("trace", "shown", "saved"),
    [
        (typed("abcdef"), ["", "cdef", "", "", "", ""], 3 / 6),  # all but one keystroke
        (typed("abcdef"), ["xyz", "cdX", "", "efg", "", ""], 0),  # they are not typed
        (typed("abc"), ["b", "c", ""], 0),  # of one keystroke
        (Trace("test", "\n\n", None, ((Patch(0, 0, "a"),), (Patch(3, 0, "b"),))), ["bc", ""], 0),  # a jump ends it
    ],
)
def test_accepted_suggestions_save_keystrokes(trace: Trace, shown: list[str], saved: float) -> None:
    assert savings_of(list(play(trace)), shown).keystrokes_share == saved


def test_suggestions_that_are_taken_or_right_are_counted() -> None:
    shown = ["bcd", "cd", "d", "eX", "fg", ""]  # one is taken with its rests, one is wrong, one is typed in part alone
    assert savings_of(list(play(typed("abcdef"))), shown) == Savings(0.3333, 16.67, 3.0, 0.333, 1.0)


def record(step: int, recomputed: int, *, single_cursor: bool = True) -> Record:
    return Record(
        step=step,
        single_cursor=single_cursor,
        inserted_tokens=1,
        prompt_tokens=1000,
        recomputed_tokens=recomputed,
        prefetched_tokens=0,
        milliseconds=float(step),
        cache_outcome="hit" if recomputed <= 4 else "partial",
        suggestion="",
    )


def test_the_summary_has_the_names_and_numbers_that_are_promised() -> None:
    records = (record(1, 2), record(2, 4), record(3, 600, single_cursor=False), record(4, 2))
    result = ReplayResult("session", "model", "dry", (StrategyResult("efim", records, ("late",), None),))
    assert summary(result) == {
        "trace": "session",
        "model": "model",
        "mode": "dry",
        "requests": 4,
        "strategies": {
            "efim": {
                "hit_share": 0.75,
                "hit_share_single_cursor": 1.0,
                "recomputed_tokens": {"mean": 152.0, "p50": 2, "p95": 600, "p99": 600},
                "prefetched_tokens_mean": 0.0,
                "prompt_tokens_mean": 1000.0,
                "time_to_suggestion_ms": {"p50": 2.0, "p95": 4.0, "p99": 4.0},
                "savings": None,
                "errors": 1,
                "shown": 0,
            }
        },
    }

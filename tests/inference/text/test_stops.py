from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.text.stops import Stops
from protocol.messages import StopRule

LINE = StopRule()


@given(
    text=st.lists(st.sampled_from(["a", "b", "ab", " ", "\n", "\n  "]), max_size=20).map("".join),
    stops=st.lists(st.sampled_from(["ab", "bab", "\n\n", "a", "aab"]), max_size=3).map(tuple),
    cuts=st.sets(st.integers(0, 60)),
    indent=st.sampled_from([None, 0, 2]),
)
def test_no_stop_takes_away_what_was_settled(
    text: str, stops: tuple[str, ...], cuts: set[int], indent: int | None
) -> None:
    whole = Stops(StopRule(indent), stops).find(text)
    expected = text if whole is None else text[:whole]
    growing, settled, end = Stops(StopRule(indent), stops), "", None
    for length in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        end = growing.find(text[:length])
        if end is not None:
            break
        now = text[: growing.settled(text[:length])]
        assert now.startswith(settled)
        settled = now
    assert end == whole
    assert expected.startswith(settled)


@pytest.mark.parametrize(
    ("indent", "suffix", "text"),
    [(4, "b)\n", "x, b)  \nelse"), (2, "\n  abc", ")abc\n  abc  \nabc"), (None, "value)\n", "x, value + 1\n")],
)
def test_space_behind_the_suffix_settles_nothing_of_it(indent: int | None, suffix: str, text: str) -> None:
    stops, settled = Stops(StopRule(indent), suffix=suffix), 0
    for length in range(1, len(text) + 1):
        end = stops.find(text[:length])
        if end is not None:
            assert settled <= end
            return
        settled = max(settled, stops.settled(text[:length]))
    pytest.fail("it does not end")


def test_a_text_that_ends_at_the_suffix_was_not_cut() -> None:
    stops = Stops(StopRule(indent=0), suffix="b)\n")
    assert stops.last("x, b)", "length") == ("x, ", "stop")
    assert stops.last("x, c)", "length") == ("x, c)", "length")
    assert stops.last("x, c)", "eos") == ("x, c)", "eos")


def test_line_of_the_suffix_ends_a_line_too() -> None:
    assert Stops(LINE, suffix="b)\n").find("x, b)\n") == len("x, ")
    assert Stops(LINE, suffix="value)\n").find("x, value + 1)\n") == len("x, ")
    assert Stops(LINE, ("val",), "x, value)\n").find("y, val") == len("y, ")  # stop texts come first
    assert Stops(LINE, suffix="\n    b()\n").find("a\n    b()\n") == 1  # the newline comes first


@given(
    text=st.lists(st.sampled_from(["ab", "abc", "x", " ", "\n", "\n  ", ")"]), max_size=25).map("".join),
    suffix=st.lists(st.sampled_from(["ab", "abc", " ", "\n", "\n  ", ")"]), max_size=6).map("".join),
    indent=st.sampled_from([None, 0, 2, 4]),
)
def test_text_that_grows_never_takes_back_what_was_settled_before_the_suffix(
    text: str, suffix: str, indent: int | None
) -> None:
    growing, settled = Stops(StopRule(indent), suffix=suffix), ""
    for length in range(1, len(text) + 1):
        end = growing.find(text[:length])
        if end is not None:
            assert text[:end].startswith(settled)
            assert end == Stops(StopRule(indent), suffix=suffix).find(text[:length])
            return
        assert all(growing.last(text[:length], reason)[0].startswith(settled) for reason in ("eos", "length"))
        settled = max(settled, text[: growing.settled(text[:length])], key=len)


def test_text_that_no_stop_can_begin_with_is_settled_at_once() -> None:
    stops = Stops(StopRule(indent=0), ("\n\n", "end"))
    assert [stops.settled(text) for text in ("a\n", "a\nb", "a en", "a enx")] == [2 - 1, 3, 2, 5]

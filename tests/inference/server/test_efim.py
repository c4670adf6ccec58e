from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from inference.server.efim import LINES_BACK, MAX_INCREMENT_CHARS, split_prefix

LINES = [f"x = {number}\n" for number in range(40)]


@given(st.text(alphabet="ab \n\r\x0b\u2028", max_size=300) | st.text(alphabet="a\n", min_size=2000, max_size=4000))
def test_split_loses_nothing_and_is_bounded(text: str) -> None:
    prefix, increment = split_prefix(text)
    assert prefix + increment == text
    assert len(increment) <= MAX_INCREMENT_CHARS


def test_prefix_ends_at_a_line_start_some_lines_above_the_end() -> None:
    for count in range(1, len(LINES) + 1):
        prefix, increment = split_prefix("".join(LINES[:count]) + "y = ")
        assert prefix == "" or prefix.endswith("\n")
        assert min(count, LINES_BACK) <= increment.count("\n") < 2 * LINES_BACK


def test_prefix_stays_while_lines_are_typed() -> None:
    text = "".join(LINES)
    prefixes = [split_prefix(text[:length])[0] for length in range(len(text))]
    changes = sum(before != after for before, after in itertools.pairwise(prefixes))
    assert changes == len(LINES) // LINES_BACK - 1 - 1


def test_prefix_stays_while_an_overlong_line_is_typed() -> None:
    line = "x" * (4 * MAX_INCREMENT_CHARS)
    prefixes = [split_prefix("a = 1\n" + line[:length])[0] for length in range(len(line))]
    assert len(set(prefixes)) <= 2 * len(line) // MAX_INCREMENT_CHARS + 2

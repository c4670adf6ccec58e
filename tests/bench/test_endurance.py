"""Tests of what counts as growth over a working day."""

import pytest
from endurance import TENTHS, THREADS, Load, _grows

BEFORE = Load(megabytes=100, files=40, threads=20)


@pytest.mark.parametrize(
    ("after", "bound", "grows"),
    [
        (BEFORE, 0, False),
        (Load(104, 40, 20), 0, False),
        (Load(106, 40, 20), 0, True),
        (Load(100, 41, 20), 5 * THREADS, True),
        (Load(100, 40, 21), 0, True),
        (Load(100, 40, 5 * THREADS), 5 * THREADS, False),
        (Load(100, 40, 5 * THREADS + 1), 5 * THREADS, True),
    ],
)
def test_more_memory_another_file_or_a_thread_beyond_the_bound_is_growth(after: Load, bound: int, grows: bool) -> None:
    loads = [BEFORE] * (TENTHS - 1)
    assert _grows([*loads, after], bound) == grows

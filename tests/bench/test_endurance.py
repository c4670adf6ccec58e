"""Tests of what counts as growth over a working day, and of when it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import endurance
import pytest
from endurance import TENTHS, THREADS, Load, Row, Window, _day, _grows

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


def test_a_row_is_told_when_its_tenth_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Row] = []
    at_keys: list[int] = []

    @asynccontextmanager
    async def no_session(*_: Any, **__: Any) -> AsyncIterator[None]:
        yield

    def window(*_: Any) -> Window:
        return Window(None, [], [])  # type: ignore[arg-type]

    async def one_key(*_: Any) -> int:
        at_keys.append(len(told))
        return 1

    for name, fake in (("open_session", no_session), ("_opened", window), ("_line", one_key)):
        monkeypatch.setattr(endurance, name, fake)
    asyncio.run(_day([], 1, 2 * TENTHS, "tiny", 0.0, told.append))
    assert at_keys == [key // 2 for key in range(2 * TENTHS)]
    assert [keys for keys, *_ in told] == list(range(2, 2 * TENTHS + 1, 2))

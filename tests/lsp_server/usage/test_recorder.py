"""Counts on their way to the database."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from lsp_server.usage.database import add_to_file, read_statistics
from lsp_server.usage.recorder import Recorder
from lsp_server.usage.statistics import Group, Statistics, one_answer, total
from tests.lsp_server.editor import PATIENCE_S

ONE = Statistics(shown=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "statistics.sqlite"


def shown(path: Path) -> int:
    return total(read_statistics(path).values()).shown


def recorder_of(path: Path, save_s: float = 10.0) -> Recorder:
    return Recorder(path, lambda: "bundled", save_s)


async def test_saves_after_a_while_and_at_the_end(path: Path) -> None:
    recorder = recorder_of(path, save_s=0.01)
    group = recorder.group("python")
    assert group == Group(date.today().isoformat(), "bundled", "python")
    recorder.count(group, ONE)
    recorder.count(group, ONE)
    async with asyncio.timeout(PATIENCE_S):
        while not path.exists() or shown(path) != 2:
            await asyncio.sleep(0.01)
    recorder.count(group, ONE)
    recorder.close()
    assert shown(path) == 3


async def test_what_cannot_be_written_is_kept(path: Path) -> None:
    path.write_text("not ours")
    recorder = recorder_of(path)
    recorder.count(recorder.group("python"), ONE)
    recorder.close()
    path.unlink()
    recorder.close()
    assert shown(path) == 1


async def test_counts_wait_as_sums(path: Path) -> None:
    recorder = recorder_of(path)
    for _ in range(10_000):
        recorder.count(recorder.group("python"), ONE)
        recorder.count(recorder.group("python"), one_answer(3.0))
    assert len(recorder._unsaved) == 2
    recorder.close()
    assert shown(path) == 10_000


async def test_a_lock_that_is_held_does_not_delay_the_end(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = recorder_of(path)
    group = recorder.group("python")
    add_to_file(path, {(group, "shown"): 1})
    recorder.count(group, ONE)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        recorder.close()
    assert [record.getMessage() for record in caplog.records] == ["cannot save the statistics: database is locked"]
    recorder.close()
    assert shown(path) == 2

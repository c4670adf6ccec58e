"""Counts on their way to the database."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lsp_server.usage.recorder import Recorder
from lsp_server.usage.statistics import Statistics, add_to_file, read_statistics
from tests.lsp_server.editor import PATIENCE_S


async def test_saves_after_a_while_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "statistics.sqlite"
    recorder = Recorder(path, save_s=0.01)
    recorder.count(Statistics(shown=1))
    recorder.count(Statistics(shown=1))
    async with asyncio.timeout(PATIENCE_S):
        while not path.exists() or path.stat().st_size == 0 or read_statistics(path).shown != 2:
            await asyncio.sleep(0.01)
    recorder.count(Statistics(shown=1))
    recorder.close()
    assert read_statistics(path).shown == 3


async def test_counts_nothing_where_it_is_off(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "statistics.sqlite")
    recorder.enabled = False
    recorder.count(Statistics(shown=1))
    recorder.close()
    assert not (tmp_path / "statistics.sqlite").exists()


async def test_what_cannot_be_written_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "statistics.sqlite"
    path.write_text("not ours")
    recorder = Recorder(path)
    recorder.count(Statistics(shown=1))
    recorder.close()
    path.unlink()
    recorder.close()
    assert read_statistics(path).shown == 1


async def test_a_lock_that_is_held_does_not_delay_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "statistics.sqlite"
    add_to_file(path, Statistics(shown=1))
    recorder = Recorder(path)
    recorder.count(Statistics(shown=1))
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        recorder.close()
    assert [record.getMessage() for record in caplog.records] == ["cannot save the statistics: database is locked"]
    recorder.close()
    assert read_statistics(path).shown == 2

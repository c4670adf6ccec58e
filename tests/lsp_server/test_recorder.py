"""Counts on their way to the file."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from lsp_server import recorder as recorder_module
from lsp_server.recorder import Recorder
from lsp_server.statistics import Statistics, read_statistics


async def test_saves_after_a_while_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "statistics.json"
    recorder = Recorder(path, save_s=0.01)
    recorder.count(Statistics(shown=1))
    recorder.count(Statistics(shown=1))
    async with asyncio.timeout(10):
        while read_statistics(path).shown != 2:
            await asyncio.sleep(0.01)
    recorder.count(Statistics(shown=1))
    await recorder.close()
    assert read_statistics(path).shown == 3


async def test_the_end_waits_for_what_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Statistics] = []

    def write_slowly(_: Path, more: Statistics) -> None:
        time.sleep(0.1)
        written.append(more)

    monkeypatch.setattr(recorder_module, "add_to_file", write_slowly)
    recorder = Recorder(tmp_path / "statistics.json")
    recorder.count(Statistics(shown=1))
    first = asyncio.create_task(recorder.save())
    await asyncio.sleep(0)
    await recorder.close()
    assert written == [Statistics(shown=1)]
    await first


async def test_counts_nothing_where_it_is_off(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "statistics.json")
    recorder.enabled = False
    recorder.count(Statistics(shown=1))
    await recorder.close()
    assert not (tmp_path / "statistics.json").exists()


async def test_what_cannot_be_written_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "statistics.json"
    path.write_text("not ours")
    recorder = Recorder(path)
    recorder.count(Statistics(shown=1))
    await recorder.save()
    path.unlink()
    await recorder.close()
    assert read_statistics(path).shown == 1

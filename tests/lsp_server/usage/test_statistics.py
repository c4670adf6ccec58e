"""The statistics' file.

Counts on their way to the database.

The counts, and the figures that follow from them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from lsp_server.usage import statistics
from lsp_server.usage.statistics import (
    LATENCY_CLASSES_MS,
    Group,
    Recorder,
    Statistics,
    add_to_file,
    one_answer,
    read_statistics,
    total,
)
from protocol.errors import BadInput
from tests.lsp_server.editor import PATIENCE_S

TODAY = Group("2026-11-23", "bundled", "python")
YESTERDAY = TODAY._replace(day="2026-11-22")


def test_counts_are_kept_by_day_model_and_language(tmp_path: Path) -> None:
    path = tmp_path / "new" / "statistics.sqlite"
    assert read_statistics(path) == {}
    for group in (TODAY, YESTERDAY, TODAY._replace(language="go")):
        add_to_file(path, {(group, "shown"): 1, (group, "accepted"): 2})
    add_to_file(path, {(TODAY, "shown"): 1})
    read = read_statistics(path)
    assert read[TODAY] == Statistics(shown=2, accepted=2)
    assert total(read.values()).shown == 4
    assert [group.day for group in read] == [YESTERDAY.day, TODAY.day, TODAY.day]


def test_several_windows_add_to_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_LOCK_SECONDS", 60)  # a slow disk is none of this test's business
    path = tmp_path / "statistics.sqlite"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: add_to_file(path, {(TODAY, "shown"): 1}), range(20)))
    assert read_statistics(path)[TODAY].shown == 20


@pytest.mark.parametrize("content", [b"{}", b"x" * 5000])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "statistics.sqlite"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"statistics\.sqlite"):
        read_statistics(path)
    assert path.read_bytes() == content


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
    group = recorder.bucket("python")
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
    recorder.count(recorder.bucket("python"), ONE)
    recorder.close()
    path.unlink()
    recorder.close()
    assert shown(path) == 1


async def test_counts_wait_as_sums(path: Path) -> None:
    recorder = recorder_of(path)
    for _ in range(10_000):
        recorder.count(recorder.bucket("python"), ONE)
        recorder.count(recorder.bucket("python"), one_answer(3.0))
    assert len(recorder._unsaved) == 2
    recorder.close()
    assert shown(path) == 10_000


async def test_a_lock_that_is_held_does_not_delay_the_end(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = recorder_of(path)
    group = recorder.bucket("python")
    add_to_file(path, {(group, "shown"): 1})
    recorder.count(group, ONE)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        recorder.close()
    assert [record.getMessage() for record in caplog.records] == ["cannot save the statistics: database is locked"]
    recorder.close()
    assert shown(path) == 2


def test_adding() -> None:
    summed = total([Statistics(shown=2, accepted=1), Statistics(shown=3), one_answer(3.0)])
    assert (summed.shown, summed.accepted, sum(summed.answers)) == (5, 1, 1)
    assert Statistics.of(dict(summed.counts) | {"glimpsed": 1}) == summed


def test_latency_is_that_of_the_class() -> None:
    summed = total(one_answer(ms) for ms in [0.5] * 8 + [30.0, 9000.0])
    assert [summed.latency_ms(share) for share in (0.5, 0.9, 1.0)] == [1, 30, None]
    assert Statistics().latency_ms(0.5) is None
    assert len(one_answer(1.0).answers) == len(LATENCY_CLASSES_MS) + 1


def test_shares() -> None:
    figures = Statistics(
        shown=10,
        accepted=3,
        accepted_partly=1,
        accepted_characters=30,
        typed_characters=90,
        watched_30s=20,
        kept_30s=15,
        watched_10min=10,
        kept_10min=5,
        hits=3,
        partial_hits=1,
    )
    shares = (figures.acceptance_share, figures.kept_share_30s, figures.kept_share_10min)
    assert shares == (0.4, 0.75, 0.5)
    assert (figures.written_share, figures.hit_share) == (0.25, 0.75)
    empty = Statistics()
    assert {empty.acceptance_share, empty.kept_share_30s, empty.written_share, empty.hit_share} == {None}

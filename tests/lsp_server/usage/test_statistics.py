"""The counts, and their file."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from lsp_server.usage import statistics
from lsp_server.usage.statistics import Statistics, add_to_file, one_answer, read_statistics, statistics_file
from protocol.errors import BadInput


def test_adding() -> None:
    total = Statistics(shown=2, accepted=1) + Statistics(shown=3) + one_answer(3.0)
    assert (total.shown, total.accepted, sum(total.answers)) == (5, 1, 1)


def test_latency_is_that_of_the_class() -> None:
    total = sum((one_answer(ms) for ms in [0.5] * 8 + [30.0, 9000.0]), Statistics())
    assert [total.latency_ms(share) for share in (0.5, 0.9, 1.0)] == [1, 50, None]
    assert Statistics().latency_ms(0.5) is None


def test_what_is_kept_is_a_share_of_what_was_watched() -> None:
    assert Statistics().kept_share is None
    assert Statistics(accepted_characters=30, watched_characters=20, kept_characters=5).kept_share == 0.25


def test_several_windows_add_to_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_LOCK_SECONDS", 60)  # a slow disk is none of this test's business
    path = tmp_path / "new" / "statistics.sqlite"
    assert read_statistics(path) == Statistics()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: add_to_file(path, Statistics(shown=1) + one_answer(1.0)), range(20)))
    assert read_statistics(path).shown == sum(read_statistics(path).answers) == 20


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 5000])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "statistics.sqlite"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"statistics\.sqlite"):
        read_statistics(path)


def test_counts_that_are_unknown_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "statistics.sqlite"
    add_to_file(path, Statistics(shown=1))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO counts VALUES ('glimpsed', 3)")
    with pytest.raises(BadInput, match="glimpsed"):
        read_statistics(path)


def test_the_file_is_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert statistics_file().name == "statistics.sqlite"

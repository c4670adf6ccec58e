"""The statistics' file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lsp_server.usage import database
from lsp_server.usage.database import add_to_file, read_statistics
from lsp_server.usage.statistics import Group, Statistics, total
from protocol.errors import BadInput

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
    monkeypatch.setattr(database, "_LOCK_SECONDS", 60)  # a slow disk is none of this test's business
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

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inference.processors import MOST_CORES, usable_cores


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve hardware threads, two to a core: 0 and 1, 2 and 3, and so on."""
    for thread in range(12):
        folder = tmp_path / f"cpu{thread}" / "topology"
        folder.mkdir(parents=True)
        first = thread - thread % 2
        (folder / "thread_siblings_list").write_text(f"{first}-{first + 1}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    return tmp_path


def test_hardware_threads_of_a_core_count_once(cpus: Path) -> None:
    assert usable_cores(cpus) == 6


def test_only_cores_that_the_process_may_use_count(cpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 8})
    assert usable_cores(cpus) == 2


def test_where_nothing_is_known_of_cores_threads_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert usable_cores(tmp_path) == 3


def test_there_is_a_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(100)), raising=False)
    assert usable_cores(tmp_path) == MOST_CORES

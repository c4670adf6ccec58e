from __future__ import annotations

import os
from pathlib import Path

import pytest

from inference.backends.cpu.threads import MOST_CORES, usable_cores, usable_threads


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of twelve hardware threads, two to a core: 0 and 1, 2 and 3, and so on."""
    for thread in range(12):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{thread}/topology"
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


def limit(system: Path, group: str, **files: str) -> None:
    folder = system / "sys/fs/cgroup" / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_a_cgroup_limits_threads_and_cores(cpus: Path) -> None:
    (cpus / "proc/self").mkdir(parents=True)
    (cpus / "proc/self/cgroup").write_text("0::/machine/box\n")
    limit(cpus, "machine/box", cpu__max="max 100000\n")
    assert (usable_threads(cpus), usable_cores(cpus)) == (12, 6)
    limit(cpus, "machine", cpu__max="250000 100000\n")  # two and a half CPUs, for the group above
    assert (usable_threads(cpus), usable_cores(cpus)) == (3, 3)
    limit(cpus, "machine/box", cpu__max="50000 100000\n")
    assert (usable_threads(cpus), usable_cores(cpus)) == (1, 1)


def test_a_cgroup_of_version_1(cpus: Path) -> None:
    (cpus / "proc/self").mkdir(parents=True)
    (cpus / "proc/self/cgroup").write_text("5:cpu,cpuacct:/box\n3:memory:/box\n0::/\n")
    limit(cpus, "cpu,cpuacct/box", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert usable_threads(cpus) == 12
    limit(cpus, "cpu,cpuacct/box", cpu__cfs_quota_us="400000\n", cpu__cfs_period_us="100000\n")
    assert usable_threads(cpus) == 4

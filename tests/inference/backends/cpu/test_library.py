from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.backends.cpu import library
from inference.backends.cpu.library import (
    MOST_CORES,
    KernelUnavailable,
    choose_level,
    levels,
    load_library,
    unavailable_reason,
    usable_cores,
    usable_threads,
)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where the library is looked for, in which there is none yet."""
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    load_library.cache_clear()
    yield tmp_path
    load_library.cache_clear()


def test_without_a_library_it_says_what_to_do(elsewhere: Path) -> None:
    assert "install a C++ compiler" in (unavailable_reason() or "")
    with pytest.raises(KernelUnavailable, match="install a C\\+\\+ compiler"):
        levels()


def test_a_file_that_is_no_library_is_named(elsewhere: Path) -> None:
    (elsewhere / library.FILE).write_bytes(b"not a library")
    assert f"{elsewhere}/_decode" in (unavailable_reason() or "")


@pytest.mark.usefixtures("compiled")
def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    shutil.copy(Path(library.__spec__.origin or "").with_name(library.FILE), elsewhere / library.FILE)
    monkeypatch.setattr(library, "VERSION", 99)
    assert "another version of midfill" in (unavailable_reason() or "")


@pytest.mark.usefixtures("compiled")
def test_the_level_is_the_best_or_what_is_asked_for() -> None:
    assert levels()[0] == "portable"
    assert choose_level(None, {}) == levels()[-1]
    assert choose_level(None, {library.LEVEL_VARIABLE: "portable"}) == "portable"
    assert choose_level("portable", {library.LEVEL_VARIABLE: levels()[-1]}) == "portable"
    with pytest.raises(KernelUnavailable, match="unknown level 'avx1024': this CPU supports portable"):
        choose_level(None, {library.LEVEL_VARIABLE: "avx1024"})


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

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from inference.checkpoints.checkpoint import open_checkpoint
from inference.loading.main_memory import MainMemory, main_memory
from inference.loading.options import EngineOptions
from inference.loading.placement import Machine, plan_load

MB = 2**20


def write_group(system: Path, cgroup: str, group: str, files: dict[str, str]) -> None:
    (system / "proc/self").mkdir(parents=True, exist_ok=True)
    (system / "proc/self/cgroup").write_text(cgroup)
    folder = system / "sys/fs/cgroup" / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_without_cgroups_it_is_the_machines(tmp_path: Path) -> None:
    assert main_memory(tmp_path).total == psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("cgroup", "group", "names"),
    [
        ("0::/pod/core\n", "pod/core", ("memory.max", "memory.current", "inactive_file")),
        (
            "4:memory:/pod/core\n0::/\n",
            "memory/pod/core",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_a_containers_limit_counts_and_its_cached_files_do_not(
    tmp_path: Path, cgroup: str, group: str, names: tuple[str, str, str]
) -> None:
    limit, used, cached = names
    files = {limit: f"{64 * MB}\n", used: f"{40 * MB}\n", "memory.stat": f"anon 1\n{cached} {30 * MB}\n"}
    write_group(tmp_path, cgroup, group, files)
    memory = main_memory(tmp_path)
    assert (memory.total, memory.available) == (64 * MB, 54 * MB)


def test_the_group_above_limits_too(tmp_path: Path) -> None:
    inner = {"memory.max": "max\n", "memory.current": f"{MB}\n", "memory.stat": "inactive_file 0\n"}
    write_group(tmp_path, "0::/pod/core\n", "pod/core", inner)
    assert main_memory(tmp_path).total == psutil.virtual_memory().total
    outer = {"memory.max": f"{32 * MB}\n", "memory.current": f"{33 * MB}\n", "memory.stat": "inactive_file 0\n"}
    write_group(tmp_path, "0::/pod/core\n", "pod", outer)
    memory = main_memory(tmp_path)
    assert (memory.total, memory.available) == (32 * MB, 0)


def test_the_plan_of_a_small_container_keeps_within_it(monkeypatch: pytest.MonkeyPatch, tiny_checkpoint: Path) -> None:
    monkeypatch.setattr("inference.loading.placement.main_memory", lambda: MainMemory(64 * MB, 48 * MB))
    plan = plan_load(EngineOptions(str(tiny_checkpoint)), open_checkpoint(tiny_checkpoint, "tiny"), Machine())
    assert plan.memory.free == 48 * MB
    assert plan.memory.in_use <= 48 * MB

"""Main memory that this process may use: the machine's, or less in a container. Imports no torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from inference.backends.cpu.library import SYSTEM, cgroups


@dataclass(frozen=True, slots=True)
class MainMemory:
    """Bytes of main memory: all of it, and what can be taken now without swapping."""

    total: int
    available: int


def main_memory(system: Path = SYSTEM) -> MainMemory:
    """The machine's memory, less where this process's cgroups limit it, as containers have them."""
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    for group in cgroups("memory", system):
        limit, used = _of_group(group)
        total, available = min(total, limit), min(available, max(0, limit - used))
    return MainMemory(total, available)


def _of_group(group: Path) -> tuple[int, int]:
    """A cgroup's limit, very large if it has none, and what it uses; cached files that it can drop are not used.

    Version 2 writes "max" for no limit, version 1 a number beyond any machine's memory.
    """
    names = ("memory.max", "memory.current", "inactive_file")
    if not (group / names[0]).is_file():
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    try:
        limit = (group / names[0]).read_text(encoding="ascii").strip()
        used = int((group / names[1]).read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return sys.maxsize if limit == "max" else int(limit), used - int(stat.get(names[2], 0))
    except (OSError, ValueError):  # the root group has no such files
        return sys.maxsize, 0

"""Counts the CPU threads and cores that this process may use, by its affinity and its cgroups."""

from __future__ import annotations

import math
import os
from pathlib import Path

MOST_CORES = 8  # a few cores saturate memory bandwidth; more have not been measured
SYSTEM = Path("/")


def usable_threads(system: Path = SYSTEM) -> int:
    """The hardware threads that this process may keep busy, at least 1.

    Affinity limits the threads, and the quota of a cgroup, as containers have it, the share of time.
    """
    return max(1, math.ceil(min(len(_allowed_threads()), _quota(system))))


def usable_cores(system: Path = SYSTEM) -> int:
    """The cores that this process may keep busy, at least 1 and at most MOST_CORES.

    Two hardware threads of a core count once: they share the resources that limit short forwards.
    """
    siblings = [
        system / f"sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list" for thread in _allowed_threads()
    ]
    known = all(path.is_file() for path in siblings)  # on Linux
    cores = len({path.read_text() for path in siblings}) if known else len(siblings)
    return min(cores, usable_threads(system), MOST_CORES)


def _allowed_threads() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _quota(system: Path) -> float:
    """CPU time that this process's cgroups allow, in CPUs; infinity if unlimited.

    A group's ancestors limit it too. Version 2 has one tree for all controllers, version 1 one for `cpu`.
    """
    try:
        lines = (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return math.inf
    quotas = [math.inf]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = system / "sys/fs/cgroup" / controllers
        group = root / path.lstrip("/")
        quotas += [_quota_of(folder) for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return min(quotas)


def _quota_of(group: Path) -> float:
    """`cpu.max` holds quota and period in microseconds, "max" for none; version 1 has a file for each, -1 for none."""
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (group / "cpu.cfs_period_us").read_text(encoding="ascii")
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf

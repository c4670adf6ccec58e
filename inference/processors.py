"""How many cores of the CPU the model may use."""

from __future__ import annotations

import os
from pathlib import Path

MOST_CORES = 8  # a few cores use up the memory's bandwidth; more have not been measured
CPUS = Path("/sys/devices/system/cpu")


def usable_cores(cpus: Path = CPUS) -> int:
    """The cores that this process may run on, at least 1 and at most MOST_CORES.

    Two hardware threads of a core count once: they share what short forwards are bound by.
    """
    threads = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    siblings = [cpus / f"cpu{thread}/topology/thread_siblings_list" for thread in threads]
    if not all(path.is_file() for path in siblings):  # not Linux
        return min(len(threads), MOST_CORES)
    return min(len({path.read_text() for path in siblings}), MOST_CORES)

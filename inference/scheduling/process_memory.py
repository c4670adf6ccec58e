"""Measures the resident memory of the core's process and of the engine that it has started."""

from __future__ import annotations

from contextlib import suppress

import psutil


def resident_bytes() -> int:
    """Resident memory in bytes, with that of child processes; shared pages count in each."""
    process = psutil.Process()
    total = 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            total += each.memory_info().rss
    return total

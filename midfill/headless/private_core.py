"""A private runtime folder for a demo or a replay, whose core is not the user's and ends with the block."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

RUNTIME_VARIABLE = "MIDFILL_RUNTIME_DIR"
_TERMINATE_SECONDS = 10.0
_LEFT_ALONE_SECONDS = 60  # after which the core exits by itself if this process was killed


@contextmanager
def private_core_environment() -> Iterator[dict[str, str]]:
    """Environment variables under which language servers start and share a core that no other program finds."""
    folder = Path(tempfile.mkdtemp(prefix="midfill-"))
    try:
        yield {
            RUNTIME_VARIABLE: str(folder),
            "MIDFILL_DISK_MB": "0",
            "MIDFILL_STATISTICS": "false",
            "MIDFILL_PREPARE_AHEAD": "always",  # what is counted must not depend on the power supply
            "MIDFILL_EXIT_AFTER_S": str(_LEFT_ALONE_SECONDS),
        }
    finally:
        _end_processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)


def processes_in(environment: Mapping[str, str]) -> Iterator[psutil.Process]:
    """The processes of this user that have these variables."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # another user's, or gone
            if environment.items() <= process.environ().items():
                yield process


def _end_processes_of(folder: Path) -> None:
    """End all processes with this runtime folder, including a core that has not published its address yet."""
    running = list(processes_in({RUNTIME_VARIABLE: str(folder)}))
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stubborn = psutil.wait_procs(running, _TERMINATE_SECONDS)
    for process in stubborn:
        process.kill()

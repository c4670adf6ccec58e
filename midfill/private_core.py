"""A runtime folder of its own for a demo or a replay, so that its core is not the user's; it ends with the block."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from protocol.errors import BadInput
from protocol.rendezvous import read_address

_TERMINATE_SECONDS = 10.0


@contextmanager
def private_core_environment() -> Iterator[dict[str, str]]:
    """Environment variables under which language servers start and share a core that nobody else finds."""
    folder = Path(tempfile.mkdtemp(prefix="midfill-"))
    try:
        yield {"MIDFILL_RUNTIME_DIR": str(folder)}
    finally:
        for path in folder.glob("core-*.json"):
            _end_core(path)
        shutil.rmtree(folder, ignore_errors=True)


def _end_core(address_file: Path) -> None:
    try:
        address = read_address(address_file)
    except BadInput:
        return  # not published yet, or half removed: nothing that could be ended by its number
    if address is None or address.pid == os.getpid():
        return
    try:
        process = psutil.Process(address.pid)
        process.terminate()
        process.wait(_TERMINATE_SECONDS)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        process.kill()

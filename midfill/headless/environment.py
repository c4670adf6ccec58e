"""The environment of a session without an editor: its core's private runtime folder, and the workspace of a file."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from lsp_server.context.index.keeper import scan_apart
from lsp_server.context.proposals import INDEXED
from lsp_server.documents.documents import Position
from lsp_server.suggesting.open_documents import OpenDocument, enabled_sources
from protocol.settings import Settings

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


_INDEX_S = 20.0  # for a folder that has no index yet


def workspace_of(path: Path) -> Path:
    """The root of the file's repository, or its own folder if it is in none."""
    return next((folder for folder in path.parents if (folder / ".git").exists()), path.parent)


async def gathered(opened: OpenDocument, cursor: Position, folder: Path, settings: Settings) -> bool:
    """Bring the folder's index up to date, and gather proposals; False if the index takes more than 20 seconds."""
    in_time = True
    if not INDEXED.isdisjoint(enabled_sources(settings)):
        try:
            await asyncio.wait_for(scan_apart(folder), _INDEX_S)
        except TimeoutError:
            in_time = False
    await opened.gather(cursor, settings)
    return in_time

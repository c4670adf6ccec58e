"""Real processes: language servers over stdio, and the core that they start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from protocol.rendezvous import read_address
from protocol.settings import TINY_MODEL
from tests.lsp_server.editor import Editor, until

OpenEditor = Callable[..., AbstractAsyncContextManager[Editor]]

# Loading torch on a busy machine takes its time.
READY_SECONDS = 90.0


async def ready(editor: Editor) -> None:
    await until(lambda: editor.statuses and editor.statuses[-1].state in ("ready", "failed"), READY_SECONDS)
    assert editor.statuses[-1].state == "ready", editor.statuses[-1].message


async def open_ready(editor: Editor, text: str) -> None:
    """Open a document, and wait for the model."""
    editor.open(text)
    await ready(editor)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A runtime folder whose core, if one is started, ends with the module's tests."""
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    yield folder
    for pid in core_pids(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


def core_pids(runtime: Path) -> list[int]:
    """The processes of the cores that are published there, and alive."""
    addresses = [read_address(file) for file in runtime.glob("core-*.json")]
    return [address.pid for address in addresses if address and psutil.pid_exists(address.pid)]


@pytest.fixture
def open_editor(runtime: Path) -> OpenEditor:
    """Opens an editor with a language server of its own, whose log fails the test if it holds an error."""

    @asynccontextmanager
    async def opened(settings: dict[str, Any] | None = None, **capabilities: Any) -> AsyncIterator[Editor]:
        editor = Editor()
        environment = os.environ | {
            "MIDFILL_RUNTIME_DIR": str(runtime),
            "MIDFILL_MODEL": TINY_MODEL,
            "MIDFILL_PREPARE_AHEAD": "always",  # opening a document loads the model
            "MIDFILL_EXIT_AFTER_S": "30",  # where a run is broken off
        }
        await editor.start_io(sys.executable, "-m", "midfill", "lsp", env=environment)
        process = editor._server
        assert process is not None
        assert process.stderr is not None
        log = asyncio.create_task(process.stderr.read())
        try:
            await editor.start(settings or {}, **capabilities)
            yield editor
            await editor.shutdown_async(None)
            editor.exit(None)
            await editor.stop()
        finally:  # a server that a failed test leaves behind would use the next test's core
            if process.returncode is None:
                process.kill()
        assert " ERROR " not in (await log).decode()

    return opened

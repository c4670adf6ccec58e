"""What the tests of the language server share: a fake core, and an editor that is connected to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.lsp_server.editor import PATIENCE_S, Editor, editor_on
from tests.lsp_server.fake_core import FakeCore, listening, shake_hands


@pytest.fixture(autouse=True)
def _own_runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lsp_server.server.SETTLE_S", 0.01)
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
async def core() -> AsyncIterator[FakeCore]:
    core = FakeCore()
    async with core.listening():
        yield core


@pytest.fixture
async def deaf_url() -> AsyncIterator[str]:
    """Of a server that does not read what it is sent, once a WebSocket is open."""
    finished, gone = asyncio.Event(), asyncio.Event()

    async def be_deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        await finished.wait()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        gone.set()

    async with listening(be_deaf, limit=1024) as url:
        yield url
        finished.set()
        await asyncio.wait_for(gone.wait(), PATIENCE_S)


@pytest.fixture
async def editor(core: FakeCore) -> AsyncIterator[Editor]:
    """An editor whose language server is connected to the fake core."""
    async with editor_on(core) as editor:
        yield editor

"""What the tests of the language server share: a fake core, and an editor that is connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .editor import Editor, connected_editor
from .fake_core import FakeCore


@pytest.fixture(autouse=True)
def _own_runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
async def core() -> AsyncIterator[FakeCore]:
    core = FakeCore()
    async with core.listening():
        yield core


@pytest.fixture
async def editor(core: FakeCore) -> AsyncIterator[Editor]:
    """An editor whose language server is connected to the fake core."""
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token})
        await editor.until_state("ready")
        yield editor

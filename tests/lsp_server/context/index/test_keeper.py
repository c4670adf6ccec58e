"""The keeper starts the index's process after changes, and ends it with the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lsp_server.context.index import keeper as keeping
from lsp_server.context.index.database import index_file, look_up
from lsp_server.context.index.keeper import IndexKeeper


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> IndexKeeper:
    monkeypatch.setattr(keeping, "SETTLE_S", 0)
    monkeypatch.setattr(keeping, "APART_S", 0)
    return IndexKeeper()


async def scanned(keeper: IndexKeeper) -> None:
    """Return when no scan is due or under way."""
    if keeper._work is not None:
        await asyncio.wait([keeper._work])


async def test_changes_reach_the_index(tmp_path: Path, keeper: IndexKeeper) -> None:
    (tmp_path / "lib.py").write_text("def load(): ...\n")
    keeper.use((tmp_path,), enabled=True)
    await scanned(keeper)
    assert [each.path for each in look_up(index_file(tmp_path), ["load"])] == ["lib.py"]
    (tmp_path / "lib.py").unlink()
    keeper.used()  # the last scan is not old
    await scanned(keeper)
    assert list(look_up(index_file(tmp_path), ["load"]))
    keeper.changed()
    await scanned(keeper)
    assert not list(look_up(index_file(tmp_path), ["load"]))


async def test_nothing_is_indexed_where_that_is_off(tmp_path: Path, keeper: IndexKeeper) -> None:
    (tmp_path / "lib.py").write_text("def load(): ...\n")
    keeper.use((tmp_path,), enabled=False)
    keeper.changed()
    await scanned(keeper)
    assert not index_file(tmp_path).exists()


async def test_a_scan_ends_with_the_server(tmp_path: Path) -> None:
    keeper = IndexKeeper()
    keeper.use((tmp_path,), enabled=True)
    await keeper.close()
    assert not index_file(tmp_path).exists()


async def test_a_folder_that_is_not_there_is_no_fault(tmp_path: Path, keeper: IndexKeeper) -> None:
    keeper.use((tmp_path / "gone",), enabled=True)
    await scanned(keeper)
    assert not list(look_up(index_file(tmp_path / "gone"), ["load"]))


async def test_the_modules_of_the_folder_that_the_editor_was_started_in_are_not_run(
    tmp_path: Path, keeper: IndexKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib.py").write_text("def load(): ...\n")
    for module in ("filelock", "logging", "sqlite3", "tree_sitter"):
        (tmp_path / f"{module}.py").write_text("open('was_run', 'w')\n")
    monkeypatch.chdir(tmp_path)
    keeper.use((tmp_path,), enabled=True)
    await scanned(keeper)
    assert not (tmp_path / "was_run").exists()
    assert list(look_up(index_file(tmp_path), ["load"]))

"""Text of other files from end to end: the workspace is indexed, and its definitions stand in prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from lsp_server.context.index.database import index_file, look_up
from lsp_server.context.index.grammars import GRAMMAR_BY_SUFFIX
from lsp_server.features.lifecycle import INDEXED
from tests.lsp_server.editor import editor_on, until
from tests.lsp_server.fake_core import FakeCore


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("lsp_server.context.index.keeper.SETTLE_S", 0)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    others = "".join(f"other_{number} = {number}\n" for number in range(14))
    (folder / "lib.py").write_text("def load(path: str) -> int:\n    return 1\n" + others)
    (folder / ".env.py").write_text("def load(secret): ...\n")
    return folder


def indexed(folder: Path, name: str) -> list[str]:
    return [each.path for each in look_up(index_file(folder), [name])]


async def test_definitions_of_the_workspace_stand_in_prompts(core: FakeCore, folder: Path) -> None:
    async with editor_on(core, folder=folder.as_uri()) as editor:
        await until(lambda: indexed(folder, "load") == ["lib.py"])
        uri = (folder / "main.py").as_uri()
        editor.open("from lib import load\n\nload", uri=uri)
        editor.change(2, (2, 4), (2, 4), "(", uri=uri)
        editor.move_cursor(2, 5, uri=uri)
        await until(lambda: core.requests)
        await editor.suggest(2, 5, uri=uri)
        (snippet,) = core.asked[-1].prompt.context
        assert (snippet.path, snippet.text) == ("lib.py", "def load(path: str) -> int:\n")


async def test_changes_that_the_client_reports_reach_the_index(core: FakeCore, folder: Path) -> None:
    async with editor_on(core, folder=folder.as_uri()) as editor:
        await until(lambda: indexed(folder, "load") and editor.registered)
        assert [each.method for each in editor.registered] == [types.WORKSPACE_DID_CHANGE_WATCHED_FILES]
        (watching,) = editor.registered
        patterns = {each["globPattern"] for each in watching.register_options["watchers"]}
        assert patterns == {INDEXED, "**/.gitignore", "**/.midfillignore"}
        (folder / "new.py").write_text("def brand_new(): ...\n")
        change = types.FileEvent((folder / "new.py").as_uri(), types.FileChangeType.Created)
        editor.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([change]))
        await until(lambda: indexed(folder, "brand_new"))


async def test_a_saved_file_reaches_the_index_of_a_client_that_watches_none(core: FakeCore, folder: Path) -> None:
    async with editor_on(core, folder=folder.as_uri()) as editor:
        await until(lambda: indexed(folder, "load"))
        (folder / "new.py").write_text("def brand_new(): ...\n")
        document = types.TextDocumentIdentifier((folder / "new.py").as_uri())
        editor.text_document_did_save(types.DidSaveTextDocumentParams(document))
        await until(lambda: indexed(folder, "brand_new"))


async def test_no_index_where_definitions_are_off(core: FakeCore, folder: Path) -> None:
    settings = {"contextSources": ["similar", "edits"]}
    async with editor_on(core, settings=settings, folder=folder.as_uri()) as editor:
        editor.open("load(", uri=(folder / "main.py").as_uri())
        await editor.document_hash(uri=(folder / "main.py").as_uri())
    assert not index_file(folder).exists()


def test_the_client_watches_what_the_index_reads() -> None:
    suffixes = INDEXED.removeprefix("**/*.{").removesuffix("}").split(",")
    assert {f".{suffix}" for suffix in suffixes} == GRAMMAR_BY_SUFFIX.keys()

"""What becomes excluded is gone from every tier: workspace, memory, disk, and what a restart would find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import OpenDocument
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from protocol.settings import Settings
from tests.inference.slots import last_slot
from tests.inference.tiny import write_checkpoint
from tests.kv_store.integrity import check_integrity

MARK = "zebra"  # stands in the text of lib.py alone
SOURCE = Path(__file__).parents[1] / "lsp_server"


class Editor:
    """A client that edits in a workspace folder with ignore files; its engine has a disk tier."""

    def __init__(self, folder: Path, core: EngineCore, client: str) -> None:
        self.folder, self.core = folder, core
        self.costs: list[PromptCost] = []
        settings = Settings(prefix_tokens=400, suffix_tokens=200, max_tokens=2)
        self.session = EditingSession(core, settings, client, self.costs.append)
        self.session.documents.use_folders([folder.as_uri()])

    @property
    def engine(self) -> Engine:
        return self.core.engine

    def restart_core(self, options: EngineOptions) -> None:
        self.engine.close()
        self.core.engine = load_engine(options)

    def open(self, name: str, text: str) -> OpenDocument:
        opened = self.session.documents.open((self.folder / name).as_uri(), "python", 1, text)
        opened.look_at(opened.cursor)
        return opened

    async def ask(self, opened: OpenDocument, line: int = 0) -> None:
        await opened.gather(Position(line, 0), self.session.settings)
        await self.session.suggest(opened, Query(Position(line, 0)))

    def close(self, opened: OpenDocument) -> None:
        self.session.close(opened.document.uri)

    def exclude(self, name: str, file: str = ".midfillignore") -> None:
        (self.folder / file).write_text(f"{name}\n")
        self.session.documents.use_folders([self.folder.as_uri()])  # which looks at the ignore files at once

    def resident(self) -> list[str]:
        """The texts of the workspace and of all pages in all tiers."""
        slot = last_slot(self.engine)
        paths = [slot.token_ids]
        for page in slot.store._tree.pages():  # type: ignore[attr-defined]
            token_ids = page.token_ids
            while page.parent.parent is not page.parent:
                page = page.parent
                token_ids = page.token_ids + token_ids
            paths.append(list(token_ids))
        return [self.text(path) for path in paths]

    def text(self, token_ids: list[int]) -> str:
        stream = self.engine.tokenizer.text_stream()
        for token_id in token_ids:
            if self.engine.tokenizer.is_text(token_id):
                stream.push(token_id)
        return stream.text

    def levels(self) -> set[int]:
        """The tiers that have a page."""
        return {level for page in last_slot(self.engine).store._tree.pages() for level in page.copies}  # type: ignore[attr-defined]


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    checkpoint = write_checkpoint(tmp_path / "tiny", max_position_embeddings=2048)
    # Room in memory for about one prompt, so that most of what is resident is on disk.
    return EngineOptions(
        str(checkpoint), context_tokens=2048, threads=1, store_budget_bytes=400_000, cache_folder=tmp_path / "kv", slots=1
    )


@pytest.fixture
async def editor(options: EngineOptions, tmp_path: Path) -> AsyncIterator[Editor]:
    folder = tmp_path / "project"
    folder.mkdir()
    editor = Editor(folder, EngineCore(load_engine(options)), "test")
    yield editor
    editor.engine.close()


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("file", [".midfillignore", ".gitignore"])
async def test_a_file_that_lent_text_and_becomes_excluded(
    editor: Editor, options: EngineOptions, closed: bool, file: str
) -> None:
    text = (SOURCE / "documents" / "documents.py").read_text()
    lib = editor.open("lib.py", "".join((f"def {MARK}_crossing():\n", *text.splitlines(keepends=True)[84:87])))
    main = editor.open("main.py", text)
    for line in (5, 60, 100):
        await editor.ask(main, line)
    assert [each.uri for each in main.workspace.pool.selection(main.session)] == [lib.document.uri]
    await editor.ask(lib)
    if closed:
        editor.close(lib)
    other = editor.open("other.py", (SOURCE / "documents" / "positions.py").read_text())
    await editor.ask(other)
    assert any(MARK in text for text in editor.resident())
    assert editor.levels() == {0, 1}

    editor.exclude("lib.py", file)
    await editor.ask(other)
    assert not any(MARK in text for text in editor.resident())
    check_integrity(editor.engine)
    await editor.ask(main, 5)
    editor.restart_core(options)
    assert len(editor.resident()) > 1  # what did not hold it is found again
    assert not any(MARK in text for text in editor.resident())


async def test_what_another_client_had_of_the_document_goes_too_from_idle_workspaces_and_memories(
    editor: Editor, options: EngineOptions
) -> None:
    """Another client's prompt is displaced, and the core closed, after the purge: both save what is in a workspace."""
    editor.restart_core(replace(options, slots=3))
    other = Editor(editor.folder, editor.core, "other")
    text = f"def {MARK}_crossing():\n    return 1\n" * 8
    await other.ask(other.open("lib.py", text), 3)
    await editor.ask(lib := editor.open("lib.py", text))
    assert sum(MARK in editor.text(slot.token_ids) for slot in editor.engine._slots._idle) == 2
    editor.exclude("lib.py")
    await editor.ask(lib, 5)
    assert not [known for known in editor.engine._histories._sessions if known.document.endswith("lib.py")]
    assert not any(MARK in editor.text(slot.token_ids) for slot in editor.engine._slots._idle)
    for name in ("documents/documents.py", "documents/positions.py", "suggesting/queries.py"):
        await editor.ask(editor.open(name, (SOURCE / name).read_text()), 5)
    assert not any(MARK in text for text in editor.resident())
    editor.restart_core(options)
    assert len(editor.resident()) > 1
    assert not any(MARK in text for text in editor.resident())


async def test_a_closed_document_hits_the_cache_when_it_is_opened_again(editor: Editor) -> None:
    text = (SOURCE / "suggesting" / "queries.py").read_text()
    await editor.ask(main := editor.open("main.py", text), 9)
    editor.close(main)
    await editor.ask(editor.open("main.py", text), 9)
    first, second = (cost.usage for cost in editor.costs)
    assert first.recomputed_tokens == first.prompt_tokens
    assert second.recomputed_tokens <= 1


async def test_an_ignored_file_that_lent_no_text_stays_a_cache_hit_in_its_own_prompts(editor: Editor) -> None:
    lib = editor.open("lib.py", f"def {MARK}_crossing():\n    return 1\n" * 8)
    await editor.ask(lib, 3)
    editor.exclude("lib.py", ".gitignore")
    await editor.ask(lib, 3)
    assert editor.costs[-1].usage.recomputed_tokens <= 1
    editor.session.configure(replace(editor.session.settings, ignored_files="off"))
    await editor.ask(lib, 3)
    assert not any(MARK in text for text in editor.resident())


async def test_a_file_that_the_user_allows_lends_no_text_and_is_purged_when_it_is_closed(editor: Editor) -> None:
    editor.exclude("lib.py")
    lib = editor.open("lib.py", f"def {MARK}_crossing():\n    return 1\n" * 8)
    await editor.ask(lib, 3)
    assert not editor.costs
    editor.session.allow(lib)
    await editor.ask(lib, 3)
    assert any(MARK in text for text in editor.resident())
    main = editor.open("main.py", (SOURCE / "documents" / "documents.py").read_text())
    await editor.ask(main, 5)
    assert not any(MARK in text and "class Position" in text for text in editor.resident())
    editor.close(lib)
    await editor.ask(main, 5)
    assert not any(MARK in text for text in editor.resident())
    assert editor.costs[-1].usage.recomputed_tokens <= 1


@pytest.mark.parametrize("is_cell", [False, True])
async def test_what_an_earlier_run_of_the_language_server_left_on_disk(
    editor: Editor, options: EngineOptions, is_cell: bool
) -> None:
    def opened(editor: Editor) -> OpenDocument:
        document = editor.open("lib.py", f"def {MARK}_crossing():\n    return 1\n" * 8)
        if is_cell:
            editor.session.documents.splice_cells((editor.folder / "notebook").as_uri(), 0, 0, [document.document.uri])
        return document

    await editor.ask(opened(editor), 3)
    editor.restart_core(options)
    later = Editor(editor.folder, editor.core, "later")
    assert any(MARK in text for text in later.resident())
    later.exclude("lib.py")
    await later.ask(opened(later), 12)
    assert not any(MARK in text for text in later.resident())


async def test_the_cells_of_a_notebook_that_the_user_allows_are_purged_when_they_are_closed(editor: Editor) -> None:
    cell = editor.open("credentials", f"def {MARK}_crossing():\n    return 1\n" * 8)
    notebook = (editor.folder / "notebook").as_uri()
    editor.session.documents.splice_cells(notebook, 0, 0, [cell.document.uri])
    await editor.ask(cell, 3)
    assert not editor.costs
    editor.session.allow(cell)
    await editor.ask(cell, 3)
    assert any(MARK in text for text in editor.resident())
    editor.close(cell)
    editor.session.close_notebook(notebook)
    await editor.ask(editor.open("main.py", (SOURCE / "documents" / "documents.py").read_text()), 5)
    assert not any(MARK in text for text in editor.resident())

"""Notebooks: their cells read as one text, in their order, by language, and keys in them are hot."""

from __future__ import annotations

import pytest
from lsprotocol import types

from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from lsp_server.editing.documents import Document, Edit, LineChange, Position
from lsp_server.editing.notebooks import Cells
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from protocol.settings import TINY_MODEL, Settings
from tests.lsp_server.editor import Editor, until
from tests.lsp_server.fake_core import FakeCore

NOTEBOOK = "file:///project/n.ipynb"


def uri(name: str) -> str:
    return f"vscode-notebook-cell:/project/n.ipynb#{name}"


def item(name: str, text: str, language: str = "python") -> types.TextDocumentItem:
    return types.TextDocumentItem(uri(name), language, 1, text)


def cell(name: str) -> types.NotebookCell:
    return types.NotebookCell(types.NotebookCellKind.Code, uri(name))


def open_notebook(editor: Editor, *items: types.TextDocumentItem) -> None:
    cells = [types.NotebookCell(types.NotebookCellKind.Code, item.uri) for item in items]
    notebook = types.NotebookDocument(NOTEBOOK, "jupyter-notebook", 1, cells)
    editor.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))


def change_notebook(editor: Editor, cells: types.NotebookDocumentCellChanges) -> None:
    identifier = types.VersionedNotebookDocumentIdentifier(2, NOTEBOOK)
    change = types.NotebookDocumentChangeEvent(cells=cells)
    editor.notebook_document_did_change(types.DidChangeNotebookDocumentParams(identifier, change))


def splice(
    editor: Editor,
    array: types.NotebookCellArrayChange,
    opened: list[types.TextDocumentItem] | None = None,
    closed: list[str] | None = None,
) -> None:
    identifiers = [types.TextDocumentIdentifier(uri(name)) for name in closed or ()]
    structure = types.NotebookDocumentCellChangeStructure(array, opened, identifiers)
    change_notebook(editor, types.NotebookDocumentCellChanges(structure=structure))


async def prompt(editor: Editor, core: FakeCore, name: str, line: int, character: int) -> tuple[str, str]:
    """What stands before and behind the cursor in the prompt of a request."""
    assert await editor.suggest(line, character, uri=uri(name))
    asked = core.asked[-1].prompt
    return asked.prefix + asked.increment, asked.suffix


async def test_the_cells_of_a_language_read_as_one_text(editor: Editor, core: FakeCore) -> None:
    open_notebook(editor, item("a", "import os"), item("t", "# Title", "markdown"), item("b", "os."), item("c", "end"))
    assert await prompt(editor, core, "b", 0, 3) == ("import os\nos.", "\nend\n")
    assert core.asked[-1].prompt.context == ()
    assert await prompt(editor, core, "t", 0, 7) == ("# Title", "\n")


async def test_cells_are_edited_put_in_moved_and_taken_out(editor: Editor, core: FakeCore) -> None:
    open_notebook(editor, item("a", "import os"), item("b", "x = "))
    span = types.Range(types.Position(0, 7), types.Position(0, 9))
    edit = types.TextDocumentContentChangePartial(range=span, text="re\n")
    content = types.NotebookDocumentCellContentChanges(types.VersionedTextDocumentIdentifier(2, uri("a")), [edit])
    change_notebook(editor, types.NotebookDocumentCellChanges(text_content=[content]))
    assert await prompt(editor, core, "b", 0, 4) == ("import re\n\nx = ", "\n")

    splice(editor, types.NotebookCellArrayChange(0, 2, [cell("b"), cell("new")]), [item("new", "last")], ["a"])
    assert await prompt(editor, core, "b", 0, 2) == ("x ", "= \nlast\n")
    assert await prompt(editor, core, "new", 0, 4) == ("x = \nlast", "\n")
    splice(editor, types.NotebookCellArrayChange(0, 1))  # the cell stays open
    assert await prompt(editor, core, "new", 0, 3) == ("las", "t\n")
    assert await prompt(editor, core, "b", 0, 3) == ("x =", " ")


async def test_a_cell_gets_another_language_by_the_same_uri(editor: Editor, core: FakeCore) -> None:
    open_notebook(editor, item("a", "import os"), item("b", "# Title", "markdown"))
    splice(editor, types.NotebookCellArrayChange(1, 1, [cell("b")]), [item("b", "os.")], ["b"])
    assert await prompt(editor, core, "b", 0, 3) == ("import os\nos.", "\n")


def test_what_another_arrangement_changes_is_told() -> None:
    one, two, three = (Document.from_text(uri(name), "python", 1, f"{name} = 1\nend") for name in ("a", "b", "c"))
    cells = Cells(f"{NOTEBOOK}#python", "python")
    assert cells.arrange([one, three]) == LineChange(0, 0, 4)
    assert cells.arrange([one, two, three]) == LineChange(2, 0, 2)
    assert cells.arrange([one, two]) == LineChange(4, 2, 0)
    assert cells.document.text == "a = 1\nend\nb = 1\nend\n"


async def test_a_cell_that_was_viewed_and_taken_out_lends_no_lines(editor: Editor, core: FakeCore) -> None:
    open_notebook(editor, item("a", "x = 1\n"), item("b", "y = 2\n" * 40))
    assert await editor.suggest(39, 0, uri=uri("b"))
    splice(editor, types.NotebookCellArrayChange(1, 1), closed=["b"])
    editor.open("z = ")
    assert await editor.suggest(0, 4)
    assert [each.text for each in core.asked[-1].prompt.context] == ["x = 1\n\n"]


async def test_a_closed_notebook_is_released(editor: Editor, core: FakeCore) -> None:
    open_notebook(editor, item("a", "import os"))
    await editor.suggest(0, 9, uri=uri("a"))
    params = types.DidCloseNotebookDocumentParams(
        types.NotebookDocumentIdentifier(NOTEBOOK), [types.TextDocumentIdentifier(uri("a"))]
    )
    editor.notebook_document_did_close(params)
    with pytest.raises(Exception, match="is not open"):
        await editor.suggest(0, 0, uri=uri("a"))
    await until(lambda: core.released)
    assert (core.released, core.forgotten) == ([core.asked[0].session], [])


async def test_keys_are_hot_and_so_is_the_next_cell() -> None:
    costs: list[PromptCost] = []
    engine = load_dry_engine(EngineOptions(TINY_MODEL))
    session = EditingSession(EngineCore(engine), Settings(max_tokens=1), "test", costs.append)
    names = [str(number) for number in range(40)]
    for name in names:
        session.documents.open(uri(name), "python", 1, f"value_{name} = compute(1, 2, 3)\nprint(value_{name})\n")
    session.documents.splice_cells(NOTEBOOK, 0, 0, [uri(name) for name in names])
    for name in ("35", "36"):
        opened = session.documents[uri(name)]
        for column, letter in enumerate("for x in y"):
            here = Position(2, column)
            opened.apply(Edit(here, here, letter))
            opened.suggestions = ()
            await session.suggest(opened, Query(Position(2, column + 1)))
    assert [cost.uri for cost in costs] == [uri("35")] * 10 + [uri("36")] * 10
    assert all(cost.usage.recomputed_tokens <= 3 for cost in (*costs[1:10], *costs[11:]))
    assert costs[10].usage.recomputed_tokens < costs[0].usage.recomputed_tokens / 2
    engine.close()

"""Large edits as small ones.

Notebooks: their cells read as one text, in their order, by language, and keys in them are cache hits.

A stretch of text, wherever edits move it.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import (
    Cells,
    Document,
    Edit,
    LineChange,
    Position,
    Replacement,
    Span,
    follow_span,
    hunks,
    line_length,
    split_lines,
    trimmed,
)
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from midfill.replay.trace import position_at
from protocol.errors import BadInput
from protocol.settings import TINY_MODEL, Settings
from tests.lsp_server.editor import Editor, until
from tests.lsp_server.fake_core import FakeCore

TEXT = st.text(alphabet=st.sampled_from(list("ab \t\n\r\x0b\x0c\u2028é\u0301😀")), max_size=30)


def offset_of(document: Document, position: Position) -> int:
    return sum(map(len, document.lines[: position.line])) + position.column


@st.composite
def positions(draw: st.DrawFn, document: Document) -> Position:
    line = draw(st.integers(0, len(document.lines) - 1))
    return Position(line, draw(st.integers(0, line_length(document.lines[line]))))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a\n", ["a\n", ""]),
        ("a\r\nb\rc\n", ["a\r\n", "b\r", "c\n", ""]),
        ("a\x0cb\u2028c\x0bd\x85e\x1cf", ["a\x0cb\u2028c\x0bd\x85e\x1cf"]),
        ("\n\r", ["\n", "\r", ""]),
    ],
)
def test_lines_end_where_lsp_says(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@given(TEXT, st.data())
def test_edits_change_the_lines_as_they_change_the_text(text: str, data: st.DataObject) -> None:
    document = Document.from_text("file:///a.py", "python", 1, text)
    for _ in range(3):
        before = list(document.lines)
        start, end = sorted(data.draw(st.tuples(positions(document), positions(document))))
        inserted = data.draw(TEXT)
        expected = document.text[: offset_of(document, start)] + inserted + document.text[offset_of(document, end) :]
        first, removed, added = document.apply(Edit(start, end, inserted))
        assert document.text == expected
        assert document.lines == split_lines(expected)
        assert document.lines[:first] == before[:first]
        assert document.lines[first + added :] == before[first + removed :]


@given(TEXT, st.data())
def test_a_slice_is_the_text_between(text: str, data: st.DataObject) -> None:
    document = Document.from_text("file:///a.py", "python", 1, text)
    start, end = sorted(data.draw(st.tuples(positions(document), positions(document))))
    assert document.slice(start, end) == text[offset_of(document, start) : offset_of(document, end)]


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ((0, 0), (2, 0), "line 2 is not in"),
        ((0, 4), (1, 0), "column 4 is not in line 0"),
        ((-1, 0), (0, 0), "line -1"),
        ((1, 1), (0, 0), "before its start"),
    ],
)
def test_a_bad_range_changes_nothing(start: tuple[int, int], end: tuple[int, int], message: str) -> None:
    document = Document.from_text("file:///a.py", "python", 1, "abc\ndef")
    with pytest.raises(BadInput, match=message):
        document.apply(Edit(Position(*start), Position(*end), "x"))
    assert document.text == "abc\ndef"


def replacement(document: Document, start: tuple[int, int], end: tuple[int, int], text: str) -> Replacement:
    edit = Edit(Position(*start), Position(*end), text)
    return Replacement(edit, document.slice(edit.start, edit.end))


@pytest.mark.parametrize("size", [3, 30, 6000])
def test_hunks_have_the_same_effect_and_leave_what_is_alike(size: int) -> None:
    rng = random.Random(size)
    lines = [rng.choice(["", "a = 1", "    b", "return a", "\r"]) + rng.choice(["\n", "\r\n"]) for _ in range(size)]
    for _ in range(20 if size < 1000 else 2):
        new = [line for line in lines if rng.random() < 0.9]
        new[len(new) // 2 : len(new) // 2] = ["new\n", "a  =  2\n"]
        document, expected = (Document.from_text("file:///a", "", 1, "".join(lines)) for _ in range(2))
        whole = replacement(document, (0, 0), document.end, "".join(new))
        expected.apply(whole.edit)
        for part in hunks(whole):
            document.apply(part)
        assert document.text == expected.text


def test_only_what_differs_is_replaced() -> None:
    text = "a=1\nkept\nb=2\n"
    document = Document.from_text("file:///a", "", 1, text)
    parts = hunks(replacement(document, (0, 0), (3, 0), "a = 1\nkept\nb = 2\n"))
    assert [(part.start, part.end, part.text) for part in parts] == [
        ((2, 2), (2, 2), " "),
        ((2, 1), (2, 1), " "),
        ((0, 2), (0, 2), " "),
        ((0, 1), (0, 1), " "),
    ]


@pytest.mark.parametrize(
    ("end", "text", "expected"),
    [(2, "read", ("ad", "", 2)), (2, "re", ("", "", 2)), (0, "x", ("x", "", 0)), (2, "", ("", "re", 0))],
)
def test_trimmed(end: int, text: str, expected: tuple[str, str, int]) -> None:
    document = Document.from_text("file:///a", "", 1, "re")
    edit, replaced = trimmed(replacement(document, (0, 0), (0, end), text))
    assert (edit.text, replaced, edit.start.column) == expected


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


def test_what_another_arrangement_changes_is_reported() -> None:
    one, two, three = (Document.from_text(uri(name), "python", 1, f"{name} = 1\nend") for name in ("a", "b", "c"))
    cells = Cells(f"{NOTEBOOK}#python", "python")
    assert cells.arrange([one, three]) == LineChange(0, 0, 4)
    assert cells.arrange([one, two, three]) == LineChange(2, 0, 2)
    assert cells.arrange([one, two]) == LineChange(4, 2, 0)
    assert cells.document.text == "a = 1\nend\nb = 1\nend\n"


async def test_a_cell_that_was_viewed_and_taken_out_lends_no_lines() -> None:
    core = EngineCore(load_dry_engine(EngineOptions(TINY_MODEL)))
    documents = EditingSession(core, Settings(), "test", lambda cost: None).documents
    for name, text in ("a", "value = 1\n"), ("b", "value = 2\n" * 40):
        documents.open(uri(name), "python", 1, text)
    documents.splice_cells(NOTEBOOK, 0, 0, [uri("a"), uri("b")])
    documents[uri("b")].look_at(Position(39, 0))
    documents.splice_cells(NOTEBOOK, 1, 1, [])
    documents.close(uri("b"))
    opened = documents.open("file:///project/a.py", "python", 1, "value = ")
    await opened.gather(Position(0, 8), Settings())
    assert [each.text for each in opened.plan(Position(0, 8)).prompt.context] == ["value = 1\n\n"]


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


async def test_keys_are_cache_hits_and_so_is_the_next_cell() -> None:
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


@pytest.mark.parametrize(
    ("marked", "edit", "expected"),
    [
        ("a[bc]d", (0, 0, "xy"), "xya[bc]d"),
        ("a[bc]d", (4, 4, "x"), "a[bc]dx"),
        ("a[bc]d", (2, 2, "x"), "a[bxc]d"),
        ("a[bc]d", (1, 1, "x"), "ax[bc]d"),
        ("a[bc]d", (3, 3, "x"), "a[bc]xd"),
        ("a[bc]d", (1, 3, ""), "a[]d"),
        ("a[bc]d", (0, 2, "x"), "x[c]d"),
        ("a[bc]d", (2, 4, "x"), "a[b]x"),
        ("a[]d", (1, 1, "b\nc"), "a[b\nc]d"),
        ("a\n[bc]d", (0, 1, ""), "\n[bc]d"),
        ("a\nx[b\nc]d", (1, 2, ""), "ax[b\nc]d"),
    ],
)
def test_follows(marked: str, edit: tuple[int, int, str], expected: str) -> None:
    start, end = marked.index("["), marked.index("]") - 1
    text = marked.replace("[", "").replace("]", "")
    document = Document.from_text("file:///a", "python", 1, text)
    change = Edit(position_at(text, edit[0]), position_at(text, edit[1]), edit[2])
    span = follow_span(Span(position_at(text, start), position_at(text, end)), change)
    document.apply(change)
    head = len(expected[: expected.index("[")])
    assert document.text == expected.replace("[", "").replace("]", "")
    assert span.start == position_at(document.text, head)
    assert document.slice(span.start, span.end) == expected[head + 1 : expected.index("]")]

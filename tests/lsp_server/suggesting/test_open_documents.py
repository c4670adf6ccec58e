"""Open documents: changes followed, and what happens when one cannot be."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Edit, LineChange, Position, Replacement, line_length, split_lines
from lsp_server.documents.positions import ClientPosition
from lsp_server.filters.cursor_context import Insertion
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.suggesting.open_documents import Change, OpenDocuments
from lsp_server.suggesting.queries import Suggestion
from protocol.errors import BadInput
from protocol.settings import Settings

URI = "file:///a"


def insert(line: int, character: int, text: str) -> Change:
    place = ClientPosition(line, character)
    return Change(text, (place, place))


@pytest.fixture
def documents() -> OpenDocuments:
    documents = OpenDocuments(Settings())
    documents.open(URI, "python", 1, "a\nb\n")
    return documents


def test_a_document_that_was_closed_or_opened_anew_is_not_open(documents: OpenDocuments) -> None:
    first, second = documents[URI], documents.open(URI, "python", 1, "a\nb\n")
    assert (first in documents, second in documents, None in documents) == (False, True, False)
    documents.close(URI)
    assert second not in documents


def test_each_change_counts_from_the_one_before(documents: OpenDocuments) -> None:
    documents.change(URI, 2, [insert(0, 0, "x\n"), insert(1, 1, "y"), Change("", (ClientPosition(2, 0),) * 2)])
    opened = documents[URI]
    assert (opened.document.text, opened.document.version) == ("x\nay\nb\n", 2)
    assert (opened.edits, opened.inserted_chars) == (3, len("x\ny"))


def test_of_a_whole_text_what_is_new_counts_as_inserted(documents: OpenDocuments) -> None:
    documents.open(URI, "python", 1, "a\nb(c)\n")
    for version, text in enumerate(("a\nbx(c)\n", "a\nbxy(c)\n", "a\nb(c)\n"), start=2):
        documents.change(URI, version, [Change(text)])
    assert documents[URI].inserted_chars == len("xy")


def test_a_whole_text_makes_what_was_before_it_irrelevant(documents: OpenDocuments) -> None:
    documents.change(URI, 2, [insert(-1, 0, "x"), Change("new"), insert(0, 3, "er")])
    assert documents[URI].document.text == "newer"


@pytest.mark.parametrize(
    ("version", "changes", "reason"),
    [
        (0, [insert(0, 0, "x")], "version 0 of file:///a comes after version 1"),
        (2, [insert(-1, 0, "x")], "line -1, character 0 of file:///a is negative"),
        (2, [Change("", (ClientPosition(9, 9), ClientPosition(9, 8)))], "before its start"),
        (2, [Change("", (ClientPosition(1, 0), ClientPosition(0, 0)))], "before its start"),
    ],
)
def test_out_of_step_until_the_whole_text_is_sent(
    documents: OpenDocuments, version: int, changes: list[Change], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        documents.change(URI, version, changes)
    opened = documents[URI]
    assert opened.out_of_step
    documents.change(URI, 3, [insert(0, 0, "ignored")])
    assert (opened.document.text, opened.document.version) == ("a\nb\n", 1)
    documents.change(URI, 4, [Change("mended")])
    assert not opened.out_of_step
    assert (opened.document.text, opened.document.version) == ("mended", 4)


places = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda place: ClientPosition(*place))
changes = st.tuples(places, places, st.text("a\r\n", max_size=4)).filter(lambda change: change[0] <= change[1])


def clamped(text: str, place: ClientPosition) -> int:
    """The offset that editors' libraries take for a place: in a line at most its end, else the text's end."""
    lines = split_lines(text)
    if place.line >= len(lines):
        return len(text)
    return sum(map(len, lines[: place.line])) + min(place.character, line_length(lines[place.line]))


Told = list[tuple[ClientPosition, ClientPosition, str]]


@given(text=st.text("ab\r\n", max_size=12), told=st.lists(changes, max_size=6))
def test_places_beyond_the_document_mean_its_end(text: str, told: Told) -> None:
    documents = OpenDocuments(Settings())
    opened = documents.open(URI, "python", 1, text)
    for version, (start, end, new) in enumerate(told, start=2):
        first, last = clamped(text, start), clamped(text, end)
        text = text[:first] + new + text[last:]
        documents.change(URI, version, [Change(new, (start, end))])
        assert opened.document.text == text
        assert opened.document.lines == split_lines(text)


@given(text=st.text("ab\r\n", max_size=12), told=st.lists(changes, min_size=1, max_size=6), cursor=places)
def test_very_many_changes_do_the_same_as_one_edit(text: str, told: Told, cursor: ClientPosition) -> None:
    documents = OpenDocuments(Settings())
    one_by_one, at_once = documents.open("file:///b", "python", 1, text), documents.open(URI, "python", 1, text)
    at_once.cursor = documents.codec.decode(at_once.document, cursor)
    followed = list[Replacement]()
    documents.on_change = lambda _, replacements: followed.extend(replacements)
    wanted = [Change(new, (start, end)) for start, end, new in told]
    documents.change("file:///b", 2, wanted)
    followed.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lsp_server.suggesting.open_documents._MOST_FOLLOWED", 0)
        documents.change(URI, 2, wanted)
    assert at_once.document.lines == one_by_one.document.lines
    assert at_once.document.version == 2
    ((edit, replaced),) = followed
    again = Document.from_text(URI, "python", 1, text)
    assert again.slice(edit.start, edit.end) == replaced
    again.apply(edit)
    assert again.lines == one_by_one.document.lines
    at_once.document.check(at_once.cursor)


def test_a_replacement_in_twenty_thousand_places_is_followed_once(
    documents: OpenDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = documents.open(URI, "python", 1, "first\n" + "old = 1\n" * 20_000 + "last\n")
    told = list[LineChange]()
    monkeypatch.setattr(PromptPlanner, "edited", lambda _, change: told.append(change))
    changed = [Change("new", (ClientPosition(line, 0), ClientPosition(line, 3))) for line in range(20_000, 0, -1)]
    documents.change(URI, 2, changed)
    assert opened.document.text == "first\n" + "new = 1\n" * 20_000 + "last\n"
    assert told == [LineChange(1, 20_000, 20_000)]
    assert opened.edits == 1


def test_a_bad_one_of_very_many_changes_changes_nothing(documents: OpenDocuments) -> None:
    with pytest.raises(BadInput, match="is negative"):
        documents.change(URI, 2, [*[insert(0, 0, "x")] * 300, insert(-1, 0, "x")])
    assert documents[URI].out_of_step
    assert documents[URI].document.text == "a\nb\n"


def test_the_same_version_twice_is_no_error(documents: OpenDocuments) -> None:
    documents.change(URI, 1, [insert(0, 0, "x")])
    assert documents[URI].document.text == "xa\nb\n"


async def test_an_edit_or_a_closing_ends_what_is_running_and_an_edit_voids_the_offer(documents: OpenDocuments) -> None:
    opened = documents[URI]
    opened.suggestions = (Suggestion(Position(1, 0), Position(1, 0), "c", Insertion("c")),)
    running = asyncio.create_task(opened.latest.run(partial(asyncio.sleep, 60)))
    await asyncio.sleep(0)
    documents.change(URI, 2, [insert(0, 0, "x")])
    assert await running is None
    opened.latest.start(partial(asyncio.sleep, 60))
    documents.close(URI)
    assert not opened.latest.busy
    assert opened.suggestions == ()


def test_opening_again_starts_over(documents: OpenDocuments) -> None:
    opened = documents.open(URI, "python", 1, "other")
    assert (opened.document.text, opened.edits) == ("other", 0)


def test_what_is_not_open_is_named(documents: OpenDocuments) -> None:
    documents.close(URI)
    documents.close(URI)
    with pytest.raises(BadInput, match="file:///a is not open"):
        documents[URI]


def test_new_windows_mean_new_planners_and_the_same_documents(documents: OpenDocuments) -> None:
    before = documents[URI].planner
    documents.configure(Settings(max_tokens=7))
    assert documents[URI].planner is before
    documents.configure(Settings(prefix_tokens=100, strategy="spm"))
    planner = documents[URI].planner
    assert (planner.budget.prefix_tokens, planner.strategy) == (100, "spm")
    assert planner.document is documents[URI].document


async def test_other_folders_leave_what_the_user_has_decided_of_their_files(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.py\n")
    documents = OpenDocuments(Settings(ignored_files="off"))
    allowed, ignored = (documents.open((tmp_path / name).as_uri(), "python", 1, "") for name in ("a.py", "b.py"))
    allowed.workspace.verdicts.allow(allowed.document.uri)
    documents.use_folders([tmp_path.as_uri()])
    await ignored.workspace.verdicts.look(documents.uris)
    assert allowed.excluded is None
    assert ignored.excluded is not None


def test_other_settings_end_what_was_offered_by_those_before(documents: OpenDocuments) -> None:
    suggestion = Suggestion(Position(0, 0), Position(0, 0), "longer", Insertion("longer"))
    documents[URI].suggestions = (suggestion,)
    documents.configure(Settings())
    assert documents[URI].suggestions == (suggestion,)
    documents.configure(Settings(max_tokens=1))
    assert documents[URI].suggestions == ()


def test_a_line_that_is_too_long_is_not_followed_until_the_whole_text_is_sent(
    documents: OpenDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.suggesting.open_documents._LONGEST_FOLLOWED", 9)
    opened = documents[URI]
    documents.change(URI, 2, [insert(1, 0, "x" * 9)])
    assert opened.out_of_step
    documents.change(URI, 3, [insert(9, 9, "ignored, and no error")])
    assert documents.open("file:///b", "python", 1, "x" * 10).out_of_step
    documents.change(URI, 4, [Change("short")])
    assert not opened.out_of_step


edits = st.tuples(st.integers(0, 9), st.integers(0, 9), st.text("a\r\n😋", max_size=4))


@given(text=st.text("ab\r\n😋", max_size=12), cursor=st.integers(0, 12), edits=st.lists(edits, max_size=6))
def test_the_cursor_stays_in_the_document(text: str, cursor: int, edits: list[tuple[int, int, str]]) -> None:
    opened = OpenDocuments(Settings()).open(URI, "python", 1, text)
    opened.cursor = opened.document.nearest(Position(cursor // 4, cursor % 4))
    for start, end, new in edits:
        lines = opened.document.lines
        places = [Position(line, column) for line in range(len(lines)) for column in range(line_length(lines[line]) + 1)]
        first, last = sorted((places[start % len(places)], places[end % len(places)]))
        opened.apply(Edit(first, last, new))
        opened.document.check(opened.cursor)


@pytest.mark.parametrize(
    ("edit", "cursor"),
    [
        (Edit(Position(1, 0), Position(1, 0), "xy"), Position(1, 3)),
        (Edit(Position(1, 1), Position(1, 1), "xy\nz"), Position(2, 1)),  # typed at the cursor
        (Edit(Position(1, 1), Position(2, 0), ""), Position(1, 1)),
        (Edit(Position(0, 0), Position(1, 0), ""), Position(0, 1)),
        (Edit(Position(0, 0), Position(2, 0), ""), Position(0, 0)),
        (Edit(Position(0, 0), Position(2, 0), "new\ntext\n"), Position(1, 1)),  # as by a formatter
    ],
)
def test_the_cursor_follows_an_edit(documents: OpenDocuments, edit: Edit, cursor: Position) -> None:
    opened = documents[URI]
    opened.cursor = Position(1, 1)
    opened.apply(edit)
    assert opened.cursor == cursor


def test_a_cell_that_is_opened_anew_stays_in_its_notebook(documents: OpenDocuments) -> None:
    cells = ["cell:1", "cell:2"]
    for cell in cells:
        documents.open(cell, "python", 1, f"# {cell}\n")
    documents.splice_cells("nb.ipynb", 0, 0, cells)
    planner = documents[cells[1]].planner
    documents.close(cells[0])
    documents.open(cells[0], "python", 2, "anew = 1\n")
    documents.change(cells[0], 3, [insert(0, 0, "very_")])
    assert documents[cells[0]].session == documents[cells[1]].session == "nb.ipynb#python"
    assert documents[cells[1]].source.text == "very_anew = 1\n\n# cell:2\n\n"
    assert documents[cells[0]].planner is documents[cells[1]].planner is planner  # with its anchors

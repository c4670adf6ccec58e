"""What is counted of suggestions and of typing, and what becomes of them.

What counts as typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lsp_server.documents.documents import Document, Edit, Position, Replacement
from lsp_server.documents.positions import ClientPosition
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.open_documents import Change, OpenDocument, OpenDocuments
from lsp_server.usage import kept
from lsp_server.usage.acceptance import Acceptances, Keyboard
from lsp_server.usage.kept import LOOKS, KeptText, Look
from lsp_server.usage.statistics import Group, Statistics, total
from protocol.settings import Settings

URI = "file:///a"
GROUP = Group("2026-11-23", "bundled", "python")
# When texts are looked at again: soon, and never before the end.
QUICK = (Look(0.01, LOOKS[0].counts), LOOKS[1])


class Editor:
    """A document, its edits as a client sends them, and what is counted of them."""

    def __init__(self, text: str) -> None:
        self.counted: list[Statistics] = []
        self.documents = OpenDocuments(Settings())
        self.opened: OpenDocument = self.documents.open(URI, "python", 1, text)
        self.acceptances = Acceptances(self, KeptText(self.count, QUICK))
        self.documents.on_change = self.acceptances.on_edit

    def bucket(self, language: str) -> Group:
        return GROUP._replace(language=language)

    def count(self, group: Group, more: Statistics) -> None:
        assert group == GROUP
        self.counted.append(more)

    @property
    def total(self) -> Statistics:
        return total(self.counted)

    @property
    def outcomes(self) -> tuple[int, int, int, int, int]:
        total = self.total
        return total.shown, total.accepted, total.accepted_partly, total.typed_through, total.dismissed

    @property
    def characters(self) -> tuple[int, int]:
        """Accepted and typed."""
        return self.total.accepted_characters, self.total.typed_characters

    def answer(self, column: int, *texts: str, replaced: int = 0, taken: int = 0, line: int = 0) -> int:
        insertions = tuple(Insertion(text, replaced, taken) for text in texts)
        return self.acceptances.answered(self.opened, Position(line, column), insertions, 3.0)

    def change(self, *edits: tuple[int, int, str], line: int = 0) -> None:
        """Each edit replaces from the first to the second column by the text."""
        changes = [Change(text, (ClientPosition(line, start), ClientPosition(line, end))) for start, end, text in edits]
        self.documents.change(URI, self.opened.document.version + 1, changes)

    def type(self, column: int, text: str) -> None:
        for place, character in enumerate(text, start=column):
            self.change((place, place, character))

    def replace_all(self, text: str) -> None:
        self.documents.change(URI, self.opened.document.version + 1, [Change(text)])


@pytest.fixture
async def editor() -> Editor:
    return Editor("x = ")


async def test_accepted_whole_and_half_of_it_kept(editor: Editor) -> None:
    number = editor.answer(4, "1234 678")
    editor.change((4, 4, "1234 678"))
    assert editor.acceptances.accepted(number, 0) == (editor.opened, Position(0, 12))
    editor.change((0, 0, "# moved down\n"))
    editor.change((8, 12, ""), line=1)
    await asyncio.sleep(0.05)
    editor.acceptances.closed(URI)
    assert editor.outcomes == (1, 1, 0, 0, 0)
    assert editor.characters == (8, 0)
    assert (editor.total.kept_share_30s, editor.total.kept_share_10min) == (0.5, 0.5)
    assert not editor.acceptances.kept._followed


@pytest.mark.parametrize("is_told", [True, False])
async def test_the_report_may_come_before_the_edit(editor: Editor, *, is_told: bool) -> None:
    number = editor.answer(4, "one", "two")
    if is_told:
        editor.acceptances.shown(number)
    assert editor.acceptances.accepted(number, 1) is None
    editor.change((4, 4, "two"))
    editor.acceptances.close()
    assert (editor.outcomes, editor.characters) == ((1, 1, 0, 0, 0), (3, 0))
    assert editor.total.kept_share_10min == 1.0


async def test_going_on_with_a_suggestion_is_not_another_one(editor: Editor) -> None:
    editor.answer(4, "value")
    editor.type(4, "val")
    editor.answer(7, "ue")
    assert editor.outcomes == (1, 0, 0, 0, 0)
    editor.answer(7, "other")
    assert editor.outcomes == (2, 0, 0, 1, 0)
    for _ in range(2):
        editor.acceptances.ended(URI)
        assert editor.outcomes == (2, 0, 0, 1, 1)
    assert sum(editor.total.answers) == 3
    assert editor.characters == (0, 3)


async def test_what_was_accepted_and_is_suggested_again_is_another_suggestion(editor: Editor) -> None:
    editor.answer(4, "value")
    editor.change((4, 4, "value"))
    editor.change((0, 9, ""))
    editor.type(0, "v")
    editor.answer(1, "alue")
    editor.change((1, 1, "alue"))
    editor.acceptances.close()
    assert (editor.outcomes, editor.characters) == ((2, 2, 0, 0, 0), (9, 1))


# Edits after the suggestion "one(two) + three" at column 4, in the order of a client that reports nothing.
@pytest.mark.parametrize(
    ("edits", "characters"),
    [
        pytest.param([(4, 4, "one"), (7, 7, "(two)")], (8, 0), id="words"),
        pytest.param([(4, 4, "o"), (5, 5, "ne"), (7, 7, "(two)")], (7, 1), id="typed, then words"),
        pytest.param([(4, 4, "one"), (4, 7, ""), (4, 4, "one"), (7, 7, "(two)")], (8, 0), id="undone and redone"),
        pytest.param([(4, 4, "one"), (6, 7, ""), (6, 6, "e"), (7, 7, "(")], (3, 1), id="corrected"),
        pytest.param([(0, 0, "# "), (6, 6, "one"), (9, 9, "(two)")], (8, 2), id="an edit before it"),
    ],
)
async def test_text_that_appears_at_once_is_accepted(
    editor: Editor, edits: Sequence[tuple[int, int, str]], characters: tuple[int, int]
) -> None:
    editor.answer(4, "one(two) + three")
    for edit in edits:
        editor.change(edit)
    editor.acceptances.close()
    assert editor.outcomes == (1, 0, 1, 0, 0)
    assert editor.characters == characters
    assert editor.total.watched_30s == editor.total.watched_10min == characters[0]


@pytest.mark.parametrize(
    ("text", "edit", "typed"),
    [
        ("(two)", (4, 4, "()"), 2),  # closed by the editor
        ("()", (4, 4, "()"), 2),
        ("\n    two", (4, 4, "\n    "), 5),  # Enter, and indentation
        ("one", (4, 4, "on"), 2),  # two keys in one change
        ("one = two", (3, 4, " one"), 3),  # the completion popup's entry
    ],
)
async def test_text_that_keys_explain_is_typed(editor: Editor, text: str, edit: tuple[int, int, str], typed: int) -> None:
    editor.answer(4, text)
    editor.change(edit)
    assert editor.outcomes[:3] == (1, 0, 0)
    assert editor.characters == (0, typed)


async def test_the_rest_at_once_and_then_its_report_count_once(editor: Editor) -> None:
    editor.change((4, 4, "f()"))
    number = editor.answer(6, "a, b)", replaced=1)
    editor.change((6, 6, "a, b"))  # some clients insert only what is new
    assert editor.acceptances.accepted(number, 0) == (editor.opened, Position(0, 11))
    assert editor.outcomes == (1, 1, 0, 0, 0)
    assert editor.characters == (4, 3)


@pytest.mark.parametrize(("text", "taken"), [("ad_all()", 0), ("read_all()", 2)])
async def test_an_entry_of_the_popup_that_replaces_the_word(editor: Editor, text: str, taken: int) -> None:
    editor.change((4, 4, "re"))
    number = editor.answer(6, text, taken=taken)
    editor.change((4, 6, "read_all()"))
    if taken:  # the item begins with the selected entry, and the client reports it
        editor.acceptances.accepted(number, 0)
    editor.acceptances.close()
    assert (editor.outcomes, editor.characters) == ((1, 1, 0, 0, 0), (8, 2))


@pytest.mark.parametrize("edit_first", [True, False])
async def test_parts_by_reports(editor: Editor, *, edit_first: bool) -> None:
    number = editor.answer(4, "one two three")
    editor.acceptances.shown(number)

    def accept(column: int, text: str, length: int) -> None:
        steps = [lambda: editor.change((column, column, text)), lambda: editor.acceptances.accepted_partly(number, length)]
        for step in steps if edit_first else reversed(steps):
            step()

    accept(4, "one ", 4)
    accept(8, "two", 7)
    editor.type(11, " ")
    number = editor.answer(12, "three")
    assert editor.characters == (7, 1)
    accept(12, "thr", 3)
    editor.acceptances.close()
    assert (editor.outcomes, editor.characters) == ((1, 0, 1, 0, 0), (10, 1))
    assert editor.total.kept_10min == 10


async def test_keys_of_a_client_that_reports_are_typed(editor: Editor) -> None:
    editor.acceptances.shown(editor.answer(4, "one two"))
    editor.change((4, 4, "one"))  # several keys in one change
    assert editor.characters == (0, 0)  # a report may follow
    editor.change((7, 7, " "))
    assert editor.characters == (0, 3)
    editor.answer(8, "two")
    assert editor.characters == (0, 4)
    editor.acceptances.close()
    assert editor.outcomes == (1, 0, 0, 1, 0)


async def test_clients_that_report_what_they_show(editor: Editor) -> None:
    editor.acceptances.shown(editor.answer(4, "a"))
    editor.answer(4, "b")  # never shown
    assert editor.outcomes == (1, 0, 0, 0, 1)


async def test_no_more_is_accepted_than_was_suggested(editor: Editor) -> None:
    number = editor.answer(4, "one")
    assert editor.acceptances.accepted(number, -1) is None
    number = editor.answer(4, "one two")
    for length in (-5, 10**12):
        editor.acceptances.accepted_partly(number, length)
    assert editor.total.accepted_characters == len("one two")


async def test_unknown_answers_are_not_counted(editor: Editor) -> None:
    editor.acceptances.shown(99)
    editor.acceptances.accepted_partly(99, 1)
    assert editor.acceptances.accepted(99, 0) is None
    assert editor.total == Statistics()


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ("import os\n\nx = call(one, two)\n", 14),  # formatted, with other lines, in one edit
        ("import os\n\nx = call(\n    one,\n    two,\n)\n", 13),  # as several lines: the space behind the comma is gone
        ("import os\nx=call(two)\n", 9),
        ("pass\n", 0),
    ],
)
async def test_what_a_formatter_leaves_is_kept(after: str, kept: int) -> None:
    editor = Editor("import os\nx = \n")
    number = editor.answer(4, "call(one, two)", line=1)
    editor.change((4, 4, "call(one, two)"), line=1)
    editor.acceptances.accepted(number, 0)
    editor.replace_all(after)
    editor.acceptances.close()
    assert (editor.total.watched_10min, editor.total.kept_10min) == (14, kept)


async def test_followed_texts_are_bounded_and_a_key_moves_few(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    editor.replace_all("\n" * 1000)
    for line in range(1000):
        number = editor.answer(0, "one two", line=line)
        editor.change((0, 0, "one two"), line=line)
        editor.acceptances.accepted(number, 0)
    assert len(editor.acceptances.kept._followed) == kept.MOST_FOLLOWED
    assert editor.total.watched_10min == (1000 - kept.MOST_FOLLOWED) * len("one two")
    moves: list[object] = []
    follow = kept.follow_span
    monkeypatch.setattr(kept, "follow_span", lambda span, edit: moves.append(edit) or follow(span, edit))
    editor.change((3, 3, "s"), line=900)
    assert len(moves) == 1
    assert len(editor.acceptances._answers) <= 32
    editor.acceptances.close()
    assert editor.total.kept_10min == 1000 * len("one two") - len("one")  # that word became another


LONG = "a line that somebody has pasted\n"


class Writer:
    def __init__(self, text: str = "") -> None:
        self.keyboard = Keyboard()
        self.document = Document.from_text("file:///a", "python", 1, text)

    def change(self, *edits: tuple[tuple[int, int], tuple[int, int], str]) -> Statistics:
        replacements = []
        for start, end, text in edits:
            edit = Edit(Position(*start), Position(*end), text)
            replacements.append(Replacement(edit, self.document.slice(edit.start, edit.end)))
            self.document.apply(edit)
        return self.keyboard.changed("file:///a", replacements)


@pytest.mark.parametrize(
    ("text", "edits", "typed"),
    [
        ("", [((0, 0), (0, 0), "x")], 1),
        ("", [((0, 0), (0, 0), "()")], 2),
        ("", [((0, 0), (0, 0), "\n        ")], 9),
        ("re", [((0, 0), (0, 2), "read_everything_at_once()")], 23),  # from the popup
        ("ni", [((0, 0), (0, 2), "nih")], 1),  # an input method
        ("", [((0, 0), (0, 0), "a"), ((0, 1), (0, 1), "b")], 2),  # two keys in one message
        ("ab", [((0, 2), (0, 2), "c"), ((0, 2), (0, 3), "")], 1),  # a key and backspace
        ("a\na", [((0, 1), (0, 1), "x"), ((1, 1), (1, 1), "x")], 1),  # two cursors
        ("", [((0, 0), (0, 0), LONG)], 0),
        ("", [((0, 0), (0, 0), "if x in names:")], 0),
        ("a=1\nb=1\n", [((0, 1), (0, 2), " = "), ((1, 2), (1, 3), " 1")], 0),  # a formatter
        ("a\n" * 9, [((0, 0), (9, 0), "b\n" * 9)], 0),  # another branch
        ("abcd", [((0, 0), (0, 4), "")], 0),
    ],
)
def test_what_counts_as_typed(text: str, edits: list[tuple[tuple[int, int], tuple[int, int], str]], typed: int) -> None:
    assert Writer(text).change(*edits).typed_characters == typed


def test_undo_and_redo_count_nothing() -> None:
    writer = Writer()
    assert writer.change(((0, 0), (0, 0), "word")).typed_characters == 4
    for _ in range(2):
        writer.change(((0, 0), (0, 4), ""))
        assert writer.change(((0, 0), (0, 0), "word")).typed_characters == 0


def test_little_is_remembered() -> None:
    writer = Writer("x" * 20_000)
    for _ in range(200):
        writer.change(((0, 0), (0, 1), ""))
    writer.change(((0, 0), (0, 15_000), ""))
    assert sum(len(text) for _, _, text in writer.keyboard._deleted) <= 64

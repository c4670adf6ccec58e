"""What counts as typed."""

from __future__ import annotations

import pytest

from lsp_server.editing.documents import Document, Edit, Position, Replacement
from lsp_server.usage.keyboard import Keyboard
from lsp_server.usage.statistics import Statistics

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

"""Large edits as small ones."""

from __future__ import annotations

import random

import pytest

from lsp_server.editing.documents import Document, Edit, Position, Replacement
from lsp_server.editing.hunks import hunks, trimmed


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

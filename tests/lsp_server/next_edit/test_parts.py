"""The parts of an edit: each within a line, or of whole lines."""

from __future__ import annotations

import pytest

from lsp_server.documents.documents import Document, Edit, Position, Replacement, split_lines, trimmed
from lsp_server.next_edit.parts import parts_of


def edit_between(old: str, new: str) -> Edit:
    end = Document("file:///a", "text", 0, split_lines(old)).end
    return trimmed(Replacement(Edit(Position(0, 0), end, new), old)).edit


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("a = compute(26)\n", "a = measure(26, unit)\n", [((0, 4, 0, 11), "measure"), ((0, 14, 0, 14), ", unit")]),
        ("a\nb = aa\nc\nd = aa\n", "a\nb = bb\nc\nd = bb\n", [((1, 4, 1, 6), "bb"), ((3, 4, 3, 6), "bb")]),
        ("v = run(3)\n", "v = see(3)\ncheck(v)\n", [((0, 4, 0, 7), "see"), ((0, 10, 0, 10), "\ncheck(v)")]),
        ("v = compute(3)\n", "u = 1\nv = measure(3)\n", [((0, 0, 0, 0), "u = 1\n"), ((0, 4, 0, 11), "measure")]),
        ("a\r\nb\r\nc\r\nd", "a\r\nd", [((1, 0, 3, 0), "")]),
        ("a\nb\nc", "a", [((1, 0, 2, 1), "")]),
        ("a", "a\nb", [((0, 1, 0, 1), "\nb")]),
        ("one two three four five six seven\n", "1 two 3 four 5 six 7\n", [((0, 0, 0, 33), "1 two 3 four 5 six 7")]),
    ],
)
def test_parts(old: str, new: str, parts: list[tuple[tuple[int, int, int, int], str]]) -> None:
    found = parts_of(split_lines(old), edit_between(old, new))
    assert [((*part.start, *part.end), part.text) for part in found] == parts

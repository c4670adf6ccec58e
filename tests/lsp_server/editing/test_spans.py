"""A stretch of text, wherever edits move it."""

from __future__ import annotations

import pytest

from lsp_server.editing.documents import Document, Edit
from lsp_server.editing.spans import Span, end_of, follow_span
from midfill.replay.trace import position_at


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


def test_end_of() -> None:
    start = position_at("ab", 1)
    assert end_of(start, "") == start
    assert end_of(start, "xy") == (0, 3)
    assert end_of(start, "x\r\nyz") == (1, 2)

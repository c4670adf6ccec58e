from __future__ import annotations

import pytest

from lsp_server.documents.languages import indent_unit, indentation, tab_width


@pytest.mark.parametrize(("line", "columns"), [("", 0), ("  x", 2), ("\tx", 4), (" \tx", 4), ("\t x", 5), ("   ", 3)])
def test_indentation(line: str, columns: int) -> None:
    assert indentation(line) == columns


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", ""),
        ("a\nb", ""),
        ("a:\n  b:\n    c\nd", "  "),
        ("a {\n    b {\n        c\n\n    d", "    "),
        ("a:\n\tb:\n\t\tc\n", "\t"),
        ("a:\n    b", ""),  # once is no evidence
        ("a:\n  b\nc:\n    d", ""),  # of two kinds
        ("f(\n    a)\ng(\n    b)", ""),  # continued lines
        ("class A {\n public:\n  b", ""),
    ],
)
def test_indent_unit(text: str, unit: str) -> None:
    assert indent_unit(text.split("\n")) == unit


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("", 8),
        ("a {\n  b", 8),  # the first tab would stand for what spaces do not reach
        ("a {\n\tb {\n\t\tc", 4),
        ("a {\n    b {\n\tc", 8),  # Vim's way
        ("a {\n  b\n    {\n      c\n\td", 8),  # GNU's
        ("/*\n  * a\n  */\nb {\n\tc", 4),  # stars are aligned
        ("a {\n    b {\n        c\n\td", 4),  # eight spaces stand beside tabs
    ],
)
def test_tab_width(text: str, width: int) -> None:
    assert tab_width(text.split("\n")) == width

from __future__ import annotations

import pytest

from lsp_server.editing.indentation import indent_unit, indentation


@pytest.mark.parametrize(("line", "columns"), [("", 0), ("  x", 2), ("\tx", 4), (" \tx", 4), ("\t x", 5), ("   ", 3)])
def test_indentation(line: str, columns: int) -> None:
    assert indentation(line) == columns


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", "    "),
        ("a\nb", "    "),
        ("a\n  b\n    c\nd", "  "),
        ("a\n    b\n        c\n\n    d", "    "),
        ("a\n\tb\n\t\tc\n", "\t"),
        ("/*\n * a\n */\nx\n   y", "   "),
    ],
)
def test_indent_unit(text: str, unit: str) -> None:
    assert indent_unit(text.split("\n")) == unit

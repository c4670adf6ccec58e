"""The lines that follow in the document are not said again."""

from __future__ import annotations

import pytest

from lsp_server.filters.next_lines import cut_at_next_lines
from tests.lsp_server.filters.golden import filtered


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        ("def f():\n    ║\n    return x\n", "x = 1\n    return x", "x = 1"),
        ("def f():\n    ║\n    return x\n", "x = 1\n    return x\n    y = 2", "x = 1"),
        ("def f():\n    ║\n    return x\n", "return x", ""),
        ("def f():\n    ║\n\n    return x\n", "x = 1\n\n    return x", "x = 1\n"),
        ("def f():\n    ret║\n    return x\n", "urn x", ""),
        # cut short
        ("def f():\n    ║\n    return x\n", "x = 1\n    retu", "x = 1"),
        ("def f():\n    ║\n    return x\n", "retu", ""),
        ("x = a║\nx = ab\n", "b", ""),
        ("x = f║\nx = foo(1)\n", "oo", "oo"),
        # lines that say little count where the suggestion goes on as the document does
        ("if a:\n    b()\n║\nelse:\n    c()\n", "else:\n    c()", ""),
        ("f(\n    a,\n    ║\n)\nx = 1\n", "b,\n)\nx = 1", "b,"),
        # another depth, another line
        ("if a:\n    ║\nreturn x\n", "return x", "return x"),
        ("x = ║\ny = 2\n", "1", "1"),
    ],
)
def test_said_once(marked: str, text: str, inserted: str) -> None:
    assert filtered(cut_at_next_lines, marked, text) == marked.replace("║", f"⟦{inserted}⟧" if inserted else "║")

"""What stands behind the cursor on its line is not said again."""

from __future__ import annotations

import pytest

from lsp_server.filters.rest_of_line import drop_rest_of_line
from tests.lsp_server.filters.golden import filtered


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("f(║, b)", "a, b)", "f(⟦a⟧, b)"),
        ("x = ║ + 1", "2 + 1", "x = ⟦2⟧ + 1"),
        ("x = ║+ 1", "2 + 1", "x = ⟦2 ⟧+ 1"),
        ("x = ║;", "f();", "x = ⟦f()⟧;"),
        ("re║turn x", "turn x", "re║turn x"),
        ("return ║foo(x)", "bar(foo(x))", "return ⟦bar(⟧foo(x)"),
        ("x = ║ + total", "1 + total\nprint(x)", "x = ⟦1⟧ + total"),
        ("f(║, b)", "a,", "f(⟦a⟧, b)"),
        # closers may be the suggestion's own
        ("f(║)", "bar()", "f(⟦bar()⟧)"),
        ('f("║")', 'a" + "', 'f("⟦a" + "⟧")'),
        ("f(║) + 1", "bar()", "f(⟦bar()⟧) + 1"),
        # no overlap
        ("x = ║ + 1", "2", "x = ⟦2⟧ + 1"),
        ("x = ║", "2", "x = ⟦2⟧"),
    ],
)
def test_said_once(marked: str, text: str, expected: str) -> None:
    assert filtered(drop_rest_of_line, marked, text) == expected

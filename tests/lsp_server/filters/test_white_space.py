from __future__ import annotations

import pytest

from lsp_server.filters.white_space import drop_trailing_space, use_line_ends
from tests.lsp_server.filters.golden import filtered


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("x = ║", "1  \n\n", "x = ⟦1⟧"),
        ("x = ║", "  \n ", "x = ║"),
        ("x = ║", "", "x = ║"),
        ("f(║)", "a ", "f(⟦a⟧)"),
        ("x = ║ + 1", "2 ", "x = ⟦2⟧ + 1"),
        ("return ║x", "not ", "return ⟦not ⟧x"),
        ('print(║"a")', "x, ", 'print(⟦x, ⟧"a")'),
    ],
)
def test_no_trailing_space(marked: str, text: str, expected: str) -> None:
    assert filtered(drop_trailing_space, marked, text) == expected


def test_crlf_stays_crlf() -> None:
    assert filtered(use_line_ends, "if x:║\r\ny\r\n", "\n    b") == "if x:⟦\r\n    b⟧\r\ny\r\n"
    assert filtered(use_line_ends, "a\r\nif x:║", "\n    b") == "a\r\nif x:⟦\r\n    b⟧"
    assert filtered(use_line_ends, "if x:║", "\n    b") == "if x:⟦\n    b⟧"

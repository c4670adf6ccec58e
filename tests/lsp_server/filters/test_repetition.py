"""The same over and over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.repetition import _REPEATED, _says_something_twice, cut_repetition
from tests.lsp_server.filters.golden import filtered


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.append(x)\na.append(x)\na.append(x)", "⟦a.append(x)⟧"),
        ("a.append(x)\na.append(x)\na.app", "⟦a.append(x)⟧"),
        ("if abc:\n    f()\nif abc:\n    f()\nif abc:", "⟦if abc:\n    f()⟧"),
        ("if abc:\n    f()\n\nif abc:\n    f()\n\n", "⟦if abc:\n    f()\n⟧"),
        ("self.x, self.x, self.x, self.x", "⟦self.x, ⟧"),
        ("aaaaaaaaaaaaaaaaaa", "⟦a⟧"),
        ("x or x or x or x or x or x or x or x or x", "⟦x or ⟧"),
        # what may well be meant
        ("[0, 0, 0, 0]", "⟦[0, 0, 0, 0]⟧"),
        ("}\n}\n}", "⟦}\n}\n}⟧"),
        ("# ------------------", "⟦# ------------------⟧"),
        ("f(a, b)\nf(a, c)\nf(a, d)", "⟦f(a, b)\nf(a, c)\nf(a, d)⟧"),
        ('"""Say it."""', '⟦"""Say it."""⟧'),
    ],
)
def test_cut_at_the_first_repetition(text: str, expected: str) -> None:
    assert filtered(cut_repetition, "║", text) == expected


def test_the_first_line_counts_with_its_indentation() -> None:
    method = "def f(self):\n        g()\n\n"
    assert filtered(cut_repetition, "    ║", f"{method}    {method}") == f"    ⟦{method[:-1]}⟧"
    assert filtered(cut_repetition, "x = ║", "foo\nx = foo\ny") == "x = ⟦foo⟧"


@given(st.text("ab ", max_size=3), st.text("abcd", min_size=1, max_size=6), st.text("ab ", max_size=3))
def test_whatever_is_repeated_stands_there_twice(before: str, piece: str, behind: str) -> None:
    text = before + piece * (8 if len(piece) < 4 else 3) + behind
    assert _REPEATED.search(text)
    assert _says_something_twice(text)

"""All the filters, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsp_server.filters.cursor_context import Insertion
from lsp_server.filters.order import Filtered, fitted, worth_showing
from tests.lsp_server.filters.golden import place, suggested

CODE = st.text("ab (){}[]\"':;#,.=/\t\n", max_size=30)
SPACE = st.text(" \n\t", max_size=8)
LANGUAGES = st.sampled_from(["python", "rust", "typescript", "go", "c", "markdown"])


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        ("python", "x = ║", "  \n ", "x = ║"),
        ("python", "def f(║):\n    pass\n", "a, b):\n    pass", "def f(⟦a, b⟧):\n    pass\n"),
        ("python", 'print(║"a")', 'x, "a")', 'print(⟦x, ⟧"a")'),
        ("python", "if x:║\r\nz\r\n", "\n    y\nz", "if x:⟦\r\n    y⟧\r\nz\r\n"),
        ("rust", "fn f() {\n    ║\n}\n", "g();\n}\n\nfn h() {\n", "fn f() {\n    ⟦g();⟧\n}\n"),
        ("rust", "fn f() {║\n\nfn g() {}\n", "\n    h();\n}\n\nfn g", "fn f() {⟦\n    h();\n}⟧\n\nfn g() {}\n"),
    ],
)
def test_together(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected


def test_of_a_text_that_is_not_shown_the_filter_tells_its_fault() -> None:
    where = place("a = 1\n║\nbcd = 2\n")
    assert fitted("bcd = 2", where) == Filtered(Insertion(""), "says what stands below the cursor")
    assert fitted("bcd = 4", where).fault == ""


@given(CODE | SPACE, CODE | SPACE, CODE | SPACE, LANGUAGES)
def test_every_text_can_be_fitted_everywhere(before: str, after: str, text: str, language: str) -> None:
    marked = f"{before}║{after}"
    shown = suggested(marked, text, language)
    assert shown == marked or "⟦" in shown


@given(CODE, CODE, CODE, LANGUAGES)
@example("'", "'}", ":}':", "python")
def test_what_a_text_replaces_is_in_the_text(before: str, after: str, text: str, language: str) -> None:
    where = place(f"{before}║{after}", language)
    insertion = fitted(worth_showing(text, where).insertion.text, where).insertion
    left = iter(insertion.text)
    assert all(character in left for character in where.after[: insertion.replaced])

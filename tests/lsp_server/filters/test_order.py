"""All the filters, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.order import fitted, worth_showing
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
        ("python", "y = foo(║) if value", "value if value else 0).strip()", "y = foo(⟦value⟧) if value"),
        ("python", "f(║) + total", "x + total).y + total", "f(⟦x⟧) + total"),
        ("python", "return f(║) or default", "name or default).lower()", "return f(⟦name⟧) or default"),
        ("python", "f(║)\nf(abc)\n", "abc)", "f(║)\nf(abc)\n"),
        ("python", "f(abc)\nf(║)\n", "abc)", "f(abc)\nf(║)\n"),
        ("python", "def f():\n\tx = y\n\t\t║", "\tif a:\n\t\tb()", "def f():\n\tx = y\n\t\t⟦if a:\n\t\t\tb()⟧"),
        ("rust", "fn f() {\n    ║\n}\n", "g();\n}\n\nfn h() {\n", "fn f() {\n    ⟦g();⟧\n}\n"),
        ("rust", "fn f() {║\n\nfn g() {}\n", "\n    h();\n}\n\nfn g", "fn f() {⟦\n    h();\n}⟧\n\nfn g() {}\n"),
        ("typescript", "\tif (x) {║\n\ty();\n", "\n\t    z();\n\t}\n", "\tif (x) {⟦\n\t\tz();\n\t}⟧\n\ty();\n"),
    ],
)
def test_together(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected


@given(CODE | SPACE, CODE | SPACE, CODE | SPACE, LANGUAGES)
def test_every_text_can_be_fitted_everywhere(before: str, after: str, text: str, language: str) -> None:
    marked = f"{before}║{after}"
    shown = suggested(marked, text, language)
    assert shown == marked or "⟦" in shown


@given(CODE, CODE, CODE, LANGUAGES)
def test_what_a_text_replaces_is_in_the_text(before: str, after: str, text: str, language: str) -> None:
    where = place(f"{before}║{after}", language)
    insertion = fitted(worth_showing(text, where), where)
    left = iter(insertion.text)
    assert all(character in left for character in where.after[: insertion.replaced])

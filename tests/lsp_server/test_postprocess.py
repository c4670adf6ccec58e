"""What is shown of the core's text. In the goldens `║` is the cursor, and `⟦ ⟧` hold what is inserted there."""

from __future__ import annotations

import pytest

from lsp_server.postprocess import Insertion, Place, postprocess


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("x = ║", "1", "x = ⟦1⟧"),
        ("x = ║", "1  \n\n", "x = ⟦1⟧"),
        ("x = ║", "  \n ", None),
        ("x = ║", "", None),
        # what the editor closed is not closed again
        ("f(║)", "a, b)", "f(⟦a, b⟧)"),
        ("f(║)", "a, b", "f(⟦a, b⟧)"),
        ("f(║)", ")", None),
        ("f(g(║))", "a))", "f(g(⟦a⟧))"),
        ("f(g(║))", "a)", "f(g(⟦a⟧))"),
        ('print("║")', 'hello")', 'print("⟦hello⟧")'),
        ("x = {'a║'}", "b': [1]}", "x = {'a⟦b': [1]}⟧"),
        # what the text opened itself stays closed
        ("f(║)", "bar()", "f(⟦bar()⟧)"),
        ("f(║)", "bar())", "f(⟦bar()⟧)"),
        ("f(║)", "')'", "f(⟦')'⟧)"),
        # where the text goes on behind a closer, it replaces the editor's
        ("def f(║)", "a, b):", "def f(⟦a, b):⟧"),
        ("f(g(║))", "a), b)", "f(g(⟦a), b)⟧"),
        ("f(g(║))", "a), b", "f(g(⟦a), b⟧)"),
        # anything else behind the cursor is left alone
        ("x = ║ + 1", "2", "x = ⟦2⟧ + 1"),
        ("x = ║]", "f()", "x = ⟦f()⟧]"),
    ],
)
def test_on_its_line(line: str, text: str, expected: str | None) -> None:
    before, after = line.split("║")
    insertion = postprocess(text, Place(after))
    shown = f"{before}⟦{insertion.text}⟧{after[insertion.replaced :]}"
    assert shown == (expected or f"{before}⟦⟧{after}")


def test_documents_with_crlf_get_crlf() -> None:
    assert postprocess("a\n    b\n", Place("", "\r\n")) == Insertion("a\r\n    b")

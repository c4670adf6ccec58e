"""Brackets and quotes: closed once, by the suggestion or by the document."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.closers import keep_balance
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.statement import Statement
from tests.lsp_server.filters.golden import filtered


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("x = ║", "1", "x = ⟦1⟧"),
        # what stands behind the cursor is not closed again
        ("f(║)", "a, b)", "f(⟦a, b⟧)"),
        ("f(║)", "a, b", "f(⟦a, b⟧)"),
        ("f(║)", ")", "f(║)"),
        ("f(g(║))", "a))", "f(g(⟦a⟧))"),
        ("f(g(║))", "a)", "f(g(⟦a⟧))"),
        ('print("║")', 'hello")', 'print("⟦hello⟧")'),
        ("x = {'a║'}", "b': [1]}", "x = {'a⟦b': [1]}⟧"),
        # nor what stands below it
        ("f(\n    ║\n)", "a)", "f(\n    ⟦a⟧\n)"),
        ("x = [\n    1,\n    ║\n]", "2,\n]", "x = [\n    1,\n    ⟦2,\n⟧\n]"),
        # what the text opened itself stays closed
        ("f(║)", "bar()", "f(⟦bar()⟧)"),
        ("f(║)", "bar())", "f(⟦bar()⟧)"),
        ("f(║)", "')'", "f(⟦')'⟧)"),
        ('f("║")', 'a" + "b', 'f("⟦a" + "b⟧")'),
        # and what the document left open is closed
        ("f(║", "a)", "f(⟦a)⟧"),
        ("f(g(║)", "a)", "f(g(⟦a)⟧)"),
        ("f(g(║", "a))", "f(g(⟦a))⟧"),
        ("f(║\nx = (1)", "a)", "f(⟦a)⟧\nx = (1)"),
        # but nothing more
        ("f(║", "a))", "f(⟦a)⟧"),
        ("x = ║", "a]", "x = ⟦a⟧"),
        # where the text goes on behind a closer, it replaces the document's
        ("def f(║)", "a, b):", "def f(⟦a, b):⟧"),
        ("f(g(║))", "a), b)", "f(g(⟦a), b)⟧"),
        # anything else behind the cursor is left alone
        ("x = ║ + 1", "2", "x = ⟦2⟧ + 1"),
        ("x = [║]", "f()", "x = [⟦f()⟧]"),
        # brackets in comments and strings are none
        ("x = 1  # (\ny = ║", "f(')')", "x = 1  # (\ny = ⟦f(')')⟧"),
        # an open string at the end of a line is for the user to go on with
        ("x = ║", '"hello', 'x = ⟦"hello⟧'),
    ],
)
def test_python(marked: str, text: str, expected: str) -> None:
    assert filtered(keep_balance, marked, text) == expected


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        ("rust", "fn f() {\n    ║\n}\n", "g();\n}", "fn f() {\n    ⟦g();\n⟧\n}\n"),
        ("rust", "fn f() {\n    ║\nfn g() {}\n", "h();\n}", "fn f() {\n    ⟦h();\n}⟧\nfn g() {}\n"),
        ("rust", "fn f<'a>(x: &'a str) {║}", " g('(') }", "fn f<'a>(x: &'a str) {⟦ g('(') ⟧}"),
        ("typescript", "f(() => {║})", "g(`${x})`) })", "f(() => {⟦g(`${x})`) ⟧})"),
        ("go", "x := []int{║", "1, 2}", "x := []int{⟦1, 2}⟧"),
        ("c", "if (x) { /* } */\n  ║\n}", "y();\n}", "if (x) { /* } */\n  ⟦y();\n⟧\n}"),
        ("made-up", "f(║)", "it's)", "f(⟦it's⟧)"),
    ],
)
def test_other_languages(language: str, marked: str, text: str, expected: str) -> None:
    assert filtered(keep_balance, marked, text, language) == expected


BRACKETS = st.text("()[]{}a\n", max_size=10)


@given(BRACKETS, BRACKETS, BRACKETS)
def test_what_is_left_is_the_longest_beginning_in_balance_that_ends_before_a_closer(
    head: str, text: str, below: str
) -> None:
    statement = Statement(head, "", below, "python")
    ends = (end for end in range(len(text), 0, -1) if end == len(text) or text[end] in ")]}")
    longest = next((end for end in ends if statement.balanced_by(text[:end])), 0)
    where = CursorContext(before=head, language_id="python")
    where.__dict__["statement"] = statement
    assert keep_balance(Insertion(text), where).text == text[:longest]


def test_beginnings_that_close_too_much_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    balanced_by = Statement.balanced_by
    monkeypatch.setattr(
        Statement, "balanced_by", lambda self, text, *more: tried.append(text) or balanced_by(self, text, *more)
    )
    assert filtered(keep_balance, "x = ║", "f(a)\n)" + "\ny = g(b)" * 50) == "x = ⟦f(a)\n⟧"
    assert len(tried) == 3

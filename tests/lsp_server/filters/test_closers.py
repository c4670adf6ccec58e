"""Brackets and quotes: closed once, by the suggestion or by the document."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.closers import drop_surplus_closers
from lsp_server.filters.cursor_context import Insertion
from lsp_server.filters.order import fitted
from tests.lsp_server.filters.golden import filtered, place, suggested

LANGUAGES = ("python", "ruby", "vue", "sql", "shellscript", "markdown", "latex", "made-up")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        # what the editor closed is not closed again, in any language
        ("f(║)", "a, b)", "f(⟦a, b⟧)"),
        ("f(║)", "a, b", "f(⟦a, b⟧)"),
        ("f(║)", ")", "f(║)"),
        ("f(g(║))", "a))", "f(g(⟦a⟧))"),
        ("f(g(║))", "a)", "f(g(⟦a⟧))"),
        ("puts '║'", "hello'", "puts '⟦hello⟧'"),
        ("use `║`", "pip` to install", "use ⟦`pip` to install⟧".replace("⟦`", "`⟦")),
        ('print("║")', 'hello")', 'print("⟦hello⟧")'),
        ("x = {'a║'}", "b': [1]}", "x = {'a⟦b': [1]⟧}"),
        ("# see open(║)", "path) for details", "# see open(⟦path) for details⟧"),
        ("it's (║)", "don't)", "it's (⟦don't⟧)"),
        # what the text opened itself stays closed
        ("f(║)", "bar()", "f(⟦bar()⟧)"),
        ("f(║)", "bar())", "f(⟦bar()⟧)"),
        ("f(║)", "')'", "f(⟦')'⟧)"),
        ('f("║")', 'a" + "b', 'f("⟦a" + "b⟧")'),
        ("f('║')", "/', (a, b) => {", "f('⟦/', (a, b) => {⟧)"),
        # a string in a string, with the same quotes
        ("s = `${p ? `║`}`;", "(${p})` : 'no'}`", "s = `${p ? `⟦(${p})` : 'no'⟧}`;"),
        ('echo "$(f "║")"', '$0") [-n]" >&2', 'echo "$(f "⟦$0") [-n]" >&2⟧'),
        # the first or the last two of three quotes
        ('    "║"', '""Do.', '    "⟦""Do.⟧'),
        ('    """Do."║"', '""', '    """Do."⟦"⟧"'),
        ('f("║")', '""a""")', 'f("⟦""a""⟧")'),
        ("`║`", "``sh", "`⟦``sh⟧"),
        # where the text goes on behind a closer, it replaces the document's
        ("def f(║)", "a, b):", "def f(⟦a, b):⟧"),
        ("f(g(║))", "a), b)", "f(g(⟦a), b⟧)"),
        # the space before a closer is the model's
        ("if [ ║]", '-f "$x" ]', 'if [ ⟦-f "$x" ⟧]'),
        ("import { ║} from 'x'", "a, b }", "import { ⟦a, b ⟧} from 'x'"),
        # but stands once
        ("import { ║ } from 'x'", "a, b }", "import { ⟦a, b⟧ } from 'x'"),
        ("{{ ║ }}", "a }}", "{{ ⟦a⟧ }}"),
        ("f( g( ║ ) )", "a ), b )", "f( g( ⟦a ), b⟧ )"),
        # anything else behind the cursor is left alone
        ("x = [║]", "f()", "x = [⟦f()⟧]"),
    ],
)
def test_what_the_editor_closed(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        ("rust", "fn f() {\n    g(║\n    )\n}\n", "1, 2)", "fn f() {\n    g(⟦1, 2⟧\n    )\n}\n"),
        (
            "python",
            "x = f(\n    g(\n        1,\n        2║\n    )\n)\n",
            ")",
            "x = f(\n    g(\n        1,\n        2║\n    )\n)\n",
        ),
        ("python", "f(\n    ║\n)\n", "a)", "f(\n    ⟦a⟧\n)\n"),
        # one that the document lacks
        ("python", "x = f(g(\n    a║\n)\n", ")", "x = f(g(\n    a⟦)⟧\n)\n"),
        ("java", "    ║\n}\n", "}\n\n    void f() {", "    ⟦}\n\n    void f() {⟧\n}\n"),
        # text of literals and comments is no closer
        ("javascript", "g(a, ║\n)\n", "/[)\\]]/", "g(a, ⟦/[)\\]]/⟧\n)\n"),
        ("c", "f(║\n)\n", "')'", "f(⟦')'⟧\n)\n"),
        (
            "c",
            "// 1) }\nvoid f() {\n    if (a) {\n        ║\n}\n",
            "b();\n    }",
            "// 1) }\nvoid f() {\n    if (a) {\n        ⟦b();\n    }⟧\n}\n",
        ),
        ("python", "s = ':)'\nx = f(g(\n    ║\n)\n", "a)", "s = ':)'\nx = f(g(\n    ⟦a)⟧\n)\n"),
        ("python", "s = ':)'\nx = f(\n    ║\n)\n", "a)", "s = ':)'\nx = f(\n    ⟦a⟧\n)\n"),
        # nothing is cut for balance where the language is unknown, or prose
        ("markdown", "1\n║\n)\n", "a) b", "1\n⟦a) b⟧\n)\n"),
        ("made-up", "f(a║\n)\n", ", b)", "f(a⟦, b)⟧\n)\n"),
        # nor at a closer that the document has not
        ("python", "x = ║\n", "a]", "x = ⟦a]⟧\n"),
    ],
)
def test_a_bracket_that_the_document_has_next(language: str, marked: str, text: str, expected: str) -> None:
    assert filtered(drop_surplus_closers, marked, text, language) == expected


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_editor_closed_on_a_line_below(language: str) -> None:
    where = replace(place("f(\n    ║\n)\n", language), hidden="\n)")
    assert fitted("a)", where).insertion == Insertion("a")
    assert fitted("g(a)", where).insertion == Insertion("g(a)")


@pytest.mark.parametrize("language", LANGUAGES)
def test_quotes_of_the_lines_below_do_not_open_the_string_of_the_cursors_line(language: str) -> None:
    text = "pip`:\n\n```sh"
    assert fitted(text, place("see `║`", language)).insertion == Insertion(text, replaced=1)


@given(st.lists(st.sampled_from(["a", " ", "(b)", "[c]", "{d}", "'e'", ', "f"']), min_size=1, max_size=8), st.data())
def test_a_call_is_closed_once_wherever_its_line_is_cut(parts: list[str], data: st.DataObject) -> None:
    """The model writes the rest of the author's line, and the editor has closed the call."""
    inside = "".join(parts).strip() or "a"
    cut = data.draw(st.sampled_from([0, len(inside)]))
    language = data.draw(st.sampled_from(LANGUAGES))
    shown = suggested(f"call({inside[:cut]}║)", inside[cut:] + ")", language)
    assert shown.replace("⟦", "").replace("⟧", "").replace("║", "") == f"call({inside})"

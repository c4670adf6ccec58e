from __future__ import annotations

import pytest

from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.whole_statements import drop_cut_line, end_with_whole_statement

BODY = CursorContext(
    before="    ", lines_above=("def f(x):\n",), lines_below=("\n", "def g():\n"), language_id="python"
)
HEADER = CursorContext(before="def f(x):", lines_below=("\n", "y = 1\n"), language_id="python")
RUST = CursorContext(before="    ", lines_above=("fn f() {\n",), lines_below=("}\n",), language_id="rust")


@pytest.mark.parametrize(
    ("context", "text", "shown"),
    [
        (BODY, "a = 1\n    return a", "a = 1\n    return a"),
        (BODY, "a = 1\n    if a:", "a = 1"),  # a header without a body
        (BODY, "a = 1\n    if a:\n        for b in a:", "a = 1"),
        (BODY, "a = 1\n    if a:\n        b = (1,\n             2,", "a = 1"),
        (BODY, "a = 1\n    @property", "a = 1"),
        (BODY, 'a = 1\n    b = """half\n    of a text', "a = 1"),
        (BODY, "a = 1\n    ", "a = 1"),
        (BODY, "if a:", "if a:"),  # one line
        (BODY, "if a:\n        if b:", "if a:"),
        (BODY, "call(\n        1,\n    )", "call(\n        1,\n    )"),
        (BODY, "call(\n        1,", "call("),
        (HEADER, "\n    a = 1\n    if a:", "\n    a = 1"),
        (HEADER, "\n    if a:", "\n    if a:"),  # the first line with text
        (RUST, "let a = 1;\n    if a {\n        b();", "let a = 1;"),
        (RUST, "let a = 1;\n    if a {\n        b();\n    }", "let a = 1;\n    if a {\n        b();\n    }"),
        (RUST, "let a = 1;\n    @decorator", "let a = 1;\n    @decorator"),  # no decorator there
    ],
)
def test_a_block_ends_with_a_whole_statement(context: CursorContext, text: str, shown: str) -> None:
    assert end_with_whole_statement(Insertion(text), context).text == shown


def test_a_header_whose_body_is_below_stays() -> None:
    context = CursorContext(before="    ", lines_below=("        b()\n", "    c()\n"), language_id="python")
    text = "a = 1\n    if a:"
    assert end_with_whole_statement(Insertion(text), context).text == text


def test_a_decorator_of_what_is_below_stays() -> None:
    context = CursorContext(before="", lines_below=("def f():\n", "    pass\n"), language_id="python")
    text = "a = 1\n\n@cache"
    assert end_with_whole_statement(Insertion(text), context).text == text


def test_a_bracket_that_the_document_closes_stays_open() -> None:
    context = CursorContext(
        before="        ",
        lines_above=("call(\n",),
        lines_below=("        [3],\n", "    ]\n", ")\n"),
        language_id="python",
    )
    assert end_with_whole_statement(Insertion("1,\n        [2,"), context).text == "1,\n        [2,"


@pytest.mark.parametrize(
    ("text", "whole"),
    [("a = 1\n    b = ca", "a = 1"), ("a = ca", "a = ca"), ("", ""), ("\n    a = ca", "\n    a = ca")],
)
def test_the_line_that_the_limit_cut_is_dropped(text: str, whole: str) -> None:
    assert drop_cut_line(text) == whole

"""Where a suggestion ends."""

from __future__ import annotations

import pytest

from lsp_server.filters.block import end_with_block, end_with_whole_statement, stop_rule, without_cut_line
from lsp_server.filters.cursor_context import CursorContext, Insertion
from protocol.messages import Alternative, StopRule
from tests.lsp_server.filters.golden import filtered

LINE = StopRule()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("║", StopRule(indent=0)),
        ("    ║", StopRule(indent=4)),
        ("\t\t║", StopRule(indent=8)),
        ("  \t║  ", StopRule(indent=4)),
        ("def f(x):║", StopRule(indent=1)),
        ("    if x:  ║", StopRule(indent=5)),
        ("fn main() {║", StopRule(indent=1)),
        ("\tcall(║", StopRule(indent=5)),
        ("const f = x =>║", StopRule(indent=1)),
        ("x = ║", LINE),
        ("return║", LINE),
        ("foo(║)", LINE),
        ("x = ║ + 1", LINE),
        ("    ║)", LINE),
        ("if x:║  # why", LINE),
    ],
)
def test_stop_rule(line: str, expected: StopRule) -> None:
    before, after = line.split("║")
    assert stop_rule(before, after, "", multi_line=True) == expected
    assert stop_rule(before, after, "", multi_line=False) == LINE


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        ("python", "def f(x):║", StopRule(indent=1)),
        ("python", "x = {a:║", LINE),
        ("python", "x: dict = {║", StopRule(indent=1)),
        ("typescript", "let x:║", LINE),
        ("typescript", "f(() =>║", StopRule(indent=1)),
        ("rust", "fn f() ->║", LINE),
        ("rust", "fn f() {║", StopRule(indent=1)),
        ("go", "case x:║", LINE),
        ("c", "if (x) {║", StopRule(indent=1)),
    ],
)
def test_what_opens_a_block_depends_on_the_language(language: str, line: str, expected: StopRule) -> None:
    before, after = line.split("║")
    assert stop_rule(before, after, language, multi_line=True) == expected


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        # one line in the middle of a line, and behind an ordinary one
        ("python", "x = ║ + 1", "2\ny = 3", "x = ⟦2⟧ + 1"),
        ("python", "x = ║", "2\ny = 3", "x = ⟦2⟧"),
        # a block up to its dedent
        ("python", "def f():\n    ║", "x = 1\n    return x\n\nprint()", "def f():\n    ⟦x = 1\n    return x\n⟧"),
        ("python", "if x:║", "\n    y()\nz()", "if x:⟦\n    y()⟧"),
        ("python", "if x:║", "\n    y()\nelse:\n    z()", "if x:⟦\n    y()⟧"),
        ("go", "\tif x {║", "\n\t\ty()\n\t}\n\tz()", "\tif x {⟦\n\t\ty()\n\t}⟧"),
        ("rust", "fn f() {║", "\n    g();\n}\n\nfn h() {", "fn f() {⟦\n    g();\n}⟧"),
        ("typescript", "f(() => {║", "\n  g()\n}, 1)\nh()", "f(() => {⟦\n  g()\n}⟧"),
        # on a blank line, through the line that closes what stands around it
        ("c", "    ║", "a();\n    }\n    b();", "    ⟦a();\n    }⟧"),
        ("python", "x = [\n    ║", "1,\n    2,\n]\ny", "x = [\n    ⟦1,\n    2,\n]⟧"),
        # no block behind a colon that opens none
        ("typescript", "let x:║", " number\nlet y", "let x:⟦ number⟧"),
        ("python", "x: dict[str, int] = {a:║", " 1\n    b", "x: dict[str, int] = {a:⟦ 1⟧"),
    ],
)
def test_ends(language: str, marked: str, text: str, expected: str) -> None:
    assert filtered(end_with_block, marked, text, language) == expected


def test_one_line_where_blocks_are_off() -> None:
    assert filtered(end_with_block, "if x:║", " y()\n    z()", multi_line=False) == "if x:⟦ y()⟧"


BODY = CursorContext(
    before="    ", lines_above=("def f(x):\n",), lines_below=("\n", "def g():\n"), language_id="python"
)
HEADER = CursorContext(before="def f(x):", lines_below=("\n", "y = 1\n"), language_id="python")
CALL = CursorContext(
    "        ", lines_above=("call(\n",), lines_below=("        [3],\n", "    ]\n", ")\n"), language_id="python"
)
HALF = "a = 1\n    if a:"
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
        # what the document goes on with below stays
        (CursorContext("    ", lines_below=("        b()\n", "    c()\n"), language_id="python"), HALF, HALF),
        (CursorContext(lines_below=("def f():\n", "    pass\n"), language_id="python"), "a\n\n@cache", "a\n\n@cache"),
        (CALL, "1,\n        [2,", "1,\n        [2,"),
    ],
)
def test_a_block_ends_with_a_whole_statement(context: CursorContext, text: str, shown: str) -> None:
    assert end_with_whole_statement(Insertion(text), context).text == shown


@pytest.mark.parametrize(
    ("text", "whole"),
    [("a = 1\n    b = ca", "a = 1"), ("a = ca", "a = ca"), ("", ""), ("\n    a = ca", "\n    a = ca")],
)
def test_the_line_that_the_limit_cut_is_dropped(text: str, whole: str) -> None:
    assert without_cut_line(Alternative(text, "length")) == whole
    assert without_cut_line(Alternative(text, "stop")) == text

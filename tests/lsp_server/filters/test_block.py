"""Where a line or a block ends."""

from __future__ import annotations

import pytest

from lsp_server.filters.block import end_with_block
from tests.lsp_server.filters.golden import filtered


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

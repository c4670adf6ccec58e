"""Nothing is said twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.repeats import (
    _REPEATED,
    _says_something_twice,
    cut_at_next_lines,
    cut_repetition,
    drop_previous_lines,
    drop_rest_of_line,
)
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


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("f(║, b)", "a, b)", "f(⟦a⟧, b)"),
        ("x = ║ + 1", "2 + 1", "x = ⟦2⟧ + 1"),
        ("x = ║+ 1", "2 + 1", "x = ⟦2 ⟧+ 1"),
        ("x = ║;", "f();", "x = ⟦f()⟧;"),
        ("re║turn x", "turn x", "re║turn x"),
        ("return ║foo(x)", "bar(foo(x))", "return ⟦bar(⟧foo(x)"),
        ("x = ║ + total", "1 + total\nprint(x)", "x = ⟦1⟧ + total"),
        ("f(║, b)", "a,", "f(⟦a⟧, b)"),
        # closers may be the suggestion's own
        ("f(║)", "bar()", "f(⟦bar()⟧)"),
        ('f("║")', 'a" + "', 'f("⟦a" + "⟧")'),
        ("f(║) + 1", "bar()", "f(⟦bar()⟧) + 1"),
        # no overlap
        ("x = ║ + 1", "2", "x = ⟦2⟧ + 1"),
        ("x = ║", "2", "x = ⟦2⟧"),
    ],
)
def test_the_rest_of_the_line_is_not_said_again(marked: str, text: str, expected: str) -> None:
    assert filtered(drop_rest_of_line, marked, text) == expected


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        ("def f():\n    ║\n    return x\n", "x = 1\n    return x", "x = 1"),
        ("def f():\n    ║\n    return x\n", "x = 1\n    return x\n    y = 2", "x = 1"),
        ("def f():\n    ║\n    return x\n", "return x", ""),
        ("def f():\n    ║\n\n    return x\n", "x = 1\n\n    return x", "x = 1\n"),
        ("def f():\n    ret║\n    return x\n", "urn x", ""),
        # cut short
        ("def f():\n    ║\n    return x\n", "x = 1\n    retu", "x = 1"),
        ("def f():\n    ║\n    return x\n", "retu", ""),
        ("x = a║\nx = ab\n", "b", ""),
        ("x = f║\nx = foo(1)\n", "oo", "oo"),
        # lines that say little count where the suggestion goes on as the document does
        ("if a:\n    b()\n║\nelse:\n    c()\n", "else:\n    c()", ""),
        ("f(\n    a,\n    ║\n)\nx = 1\n", "b,\n)\nx = 1", "b,"),
        # another depth, another line
        ("if a:\n    ║\nreturn x\n", "return x", "return x"),
        ("x = ║\ny = 2\n", "1", "1"),
    ],
)
def test_the_next_lines_are_not_said_again(marked: str, text: str, inserted: str) -> None:
    assert filtered(cut_at_next_lines, marked, text) == marked.replace("║", f"⟦{inserted}⟧" if inserted else "║")


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        ("import os\n║", "import os", ""),
        ("import os\nimport ║", "os", ""),
        ("import os\n\n║", "import os", ""),
        ("a = f(1)\nb = f(2)\n║", "a = f(1)\nb = f(2)", ""),
        ("result.append(x)\n║", "result.app", ""),
        ("    def f(self):\n        g()\n\n    ║", "def f(self):\n        g()\n\n    def f(self):", ""),
        ("}\n}\n║", "}\n}\n}", "}\n}\n}"),
        ("import os\n║", "import sys", "import sys"),
        ("import os\nimport ║", "re", "re"),
        ("x = foo(1)\nx = f║", "oo", "oo"),
        ("a = f(1)\nb = f(2)\n║", "b = f(2)\nc = f(3)", "b = f(2)\nc = f(3)"),
        ("    }\n  ║", "}", "}"),
        ("║", "x", "x"),
    ],
)
def test_the_previous_lines_are_not_said_again(marked: str, text: str, inserted: str) -> None:
    assert filtered(drop_previous_lines, marked, text) == marked.replace("║", f"⟦{inserted}⟧" if inserted else "║")

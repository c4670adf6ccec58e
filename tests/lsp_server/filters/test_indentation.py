"""No deeper than the lines above ask for, in the document's own unit, and as Python allows."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.indentation import (
    cut_broken_indentation,
    drop_extra_indentation,
    drop_trailing_space,
    use_line_ends,
    use_own_indentation,
)
from tests.lsp_server.filters.golden import filtered

BODY = "def f():\n    x = 1\n"


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        (BODY + "    ║", "    return x", "return x"),
        (BODY + "    ║", "    for a in b:\n            c()\n        d()", "for a in b:\n        c()\n    d()"),
        ("def f():\n    if a:\n    ║", "    return x", "    return x"),  # the line above opens a block
        ("def f():\n    if a:\n    ║", "        return x", "    return x"),
        ("def f():\n    if a:\n        ║", "    return x", "return x"),
        (BODY + "║", "    return x", "    return x"),  # back to the depth of the line above
        ("║", "    import os", "import os"),
        (BODY + "    y =║", "    1", "    1"),  # not a blank line
        (BODY + "    ║", "\n        y", "\n        y"),  # begins on the next line
        (BODY + "    ║", "    ", "    "),  # nothing to indent
        (BODY + "\n\n    ║", "    return x", "return x"),  # blank lines say nothing
        # lines less deep than the first: it says the indentation of the cursor's line again
        (BODY + "    ║", "    if a:\n        b()\n    c()", "if a:\n        b()\n    c()"),
        (BODY + "        ║", "    if a:\n        b()\n\n    c()", "if a:\n            b()\n\n        c()"),
        (BODY + "        ║", "    if a:\n            b()\n        c()", "if a:\n            b()\n        c()"),
    ],
)
def test_extra_indentation_is_taken_back(marked: str, text: str, inserted: str) -> None:
    assert filtered(drop_extra_indentation, marked, text) == marked.replace("║", f"⟦{inserted}⟧")


TABS = "if a:\n\tb\nif c:\n\td\n"
TWOS = "if (a) {\n  b\n}\nif (c) {\n  d\n}\n"
FOURS = "if a:\n    b\n"


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        # tabs stay tabs
        (TABS + "if x:║", "\n    y\n    if z:\n        w", "\n\ty\n\tif z:\n\t\tw"),
        (TABS + "if x:║", "\n\ty\n\t\tz", "\n\ty\n\t\tz"),
        (TABS + "\tif x:║", "\n        y", "\n\t\ty"),
        (TABS + "if x:║", "\n  y\n  if z:\n    w", "\n\ty\n\tif z:\n\t\tw"),
        (FOURS + "if x:║", "\n\ty\n\t\tz", "\n    y\n        z"),
        # steps of two stay steps of two, and of four of four
        (TWOS + "if (x) {║", "\n    y\n    if (z) {\n        w\n    }\n}", "\n  y\n  if (z) {\n    w\n  }\n}"),
        (TWOS + "if (x) {║", "\n  y\n}", "\n  y\n}"),
        (FOURS + "if x:║", "\n  y\n  if z:\n    w", "\n    y\n    if z:\n        w"),
        # what is aligned stays so
        (FOURS + "x = f(║", "a,\n      b)", "a,\n      b)"),
        (FOURS + "x = f(║", "\n        a,\n        b)", "\n        a,\n        b)"),
        # no space too many
        (FOURS + "x = ║", " 1", "1"),
        (FOURS + "x =║", " 1", " 1"),
        (FOURS + "x = 1 ║", " # why", " # why"),
        (FOURS + "    ║", " return x", "return x"),
        (FOURS + "    ║", "    return x", "    return x"),
        (FOURS + "║", "    return x", "    return x"),
        (FOURS + "║", " return x", "return x"),
        (TABS + "\t║", "    return x", "\treturn x"),
    ],
)
def test_own_unit(marked: str, text: str, inserted: str) -> None:
    assert filtered(use_own_indentation, marked, text) == marked.replace("║", f"⟦{inserted}⟧")


IF = "class A:\n    def f():\n        for a in b:\n            while c:\n                "


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        (IF + "if d:║", "\n" + " " * 24 + "e()\n" + " " * 20 + "else:\n" + " " * 24 + "g()", ""),
        (IF + "║", "if d:\n" + " " * 24 + "e()\n" + " " * 20 + "else:", "if d:"),
        (IF + "║", "if d:\n" + " " * 20 + "e()\n" + " " * 16 + "else:", None),
        (IF + "║", "if d:\n" + " " * 20 + "e()\n" + " " * 12 + "h()", None),  # back to a level of the document
        (IF + "║", "x()\n" + " " * 14 + "y()\nz()", "x()"),
        ("if a:║", "\n    b(c,\n      d)\n    e()", None),
        ("if a:║", '\n    """B.\n  C.\n    """\n    e()', None),
        ("if a:║", "\n    b = \\\n  c\n  # d\n    e()", None),
        ("x = f(║", "\n    a,\n  b)", None),
        ("║", "if a:\n    b\n  c", "if a:"),
    ],
)
def test_cut_before_the_block_that_is_broken(marked: str, text: str, inserted: str | None) -> None:
    kept = text if inserted is None else inserted
    assert filtered(cut_broken_indentation, marked, text) == marked.replace("║", f"⟦{kept}⟧" if kept else "║")


def test_only_where_indentation_makes_the_blocks() -> None:
    assert filtered(cut_broken_indentation, "║", "if a {\n    b\n  c", "rust") == "⟦if a {\n    b\n  c⟧"


LINES = st.recursive(
    st.just("x"),
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda blocks: st.sampled_from([" ", "    ", "\t"]).map(
            lambda unit: "if a:\n" + textwrap.indent("\n".join(blocks), unit) + "\nx"
        )
    ),
    max_leaves=8,
)


@given(LINES, st.data())
def test_code_that_python_compiles_is_left_alone(code: str, data: st.DataObject) -> None:
    compile(code, "code", "exec")
    cursor = data.draw(st.integers(0, len(code)))
    marked, text = code[:cursor] + "║", code[cursor:]
    assert filtered(cut_broken_indentation, marked, text) == marked.replace("║", f"⟦{text}⟧" if text else "║")


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("x = ║", "1  \n\n", "x = ⟦1⟧"),
        ("x = ║", "  \n ", "x = ║"),
        ("x = ║", "", "x = ║"),
        ("f(║)", "a ", "f(⟦a⟧)"),
        ("x = ║ + 1", "2 ", "x = ⟦2⟧ + 1"),
        ("return ║x", "not ", "return ⟦not ⟧x"),
        ('print(║"a")', "x, ", 'print(⟦x, ⟧"a")'),
    ],
)
def test_no_trailing_space(marked: str, text: str, expected: str) -> None:
    assert filtered(drop_trailing_space, marked, text) == expected


def test_crlf_stays_crlf() -> None:
    assert filtered(use_line_ends, "if x:║\r\ny\r\n", "\n    b") == "if x:⟦\r\n    b⟧\r\ny\r\n"
    assert filtered(use_line_ends, "a\r\nif x:║", "\n    b") == "a\r\nif x:⟦\r\n    b⟧"
    assert filtered(use_line_ends, "if x:║", "\n    b") == "if x:⟦\n    b⟧"

"""The document's steps where they are plain, nothing trailing, and as Python allows."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.indentation import (
    drop_doubled_space,
    drop_trailing_space,
    end_before_broken_dedent,
    use_document_steps,
    use_line_ends,
)
from tests.lsp_server.filters.golden import filtered, suggested

TABS = "if a:\n\tb\nif c:\n\td\n"
TWOS = "if (a) {\n  b\n}\nif (c) {\n  d\n}\n"
FOURS = "if a:\n    b\nif c:\n    d\n"


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        # tabs stay tabs
        (TABS + "if x:║", "\n    y\n    if z:\n        w", "\n\ty\n\tif z:\n\t\tw"),
        (TABS + "if x:║", "\n\ty\n\t\tz", "\n\ty\n\t\tz"),
        (TABS + "\tif x:║", "\n\t    y", "\n\t\ty"),
        (TABS + "║", "if x:\n    y", "if x:\n\ty"),
        (FOURS + "if x:║", "\n\ty\n\t\tz", "\n    y\n        z"),
        # steps of two stay steps of two, and of four of four
        (TWOS + "if (x) {║", "\n    y\n    if (z) {\n        w\n    }\n}", "\n  y\n  if (z) {\n    w\n  }\n}"),
        (FOURS + "if x:║", "\n  y\n  if z:\n    w", "\n    y\n    if z:\n        w"),
        (TWOS + "f(() => {║", "\n    y()\n})", "\n  y()\n})"),
        (TWOS + "x = {║", "\n\ta: 1\n}", "\n  a: 1\n}"),
    ],
)
def test_the_step_of_the_document(marked: str, text: str, inserted: str) -> None:
    assert filtered(use_document_steps, marked, text) == marked.replace("║", f"⟦{inserted}⟧")


@pytest.mark.parametrize(
    ("language", "marked", "text"),
    [
        # without evidence, or with evidence of several steps
        ("go", "package main\n\nfunc main() {║\n}\n", "\n\tfmt.Println()"),
        ("python", "def f():\n\t║", "if a:\n\t\treturn b"),
        ("makefile", "all:\n║", "\tcc -o a a.c"),
        ("json", "{║\n}\n", '\n  "a": {\n    "b": 1\n  }'),
        ("css", ".a {║\n}\n", "\n  color: red;"),
        ("python", "if a:\n    b\nif c:\n  d\nif x:║", "\n\ty"),
        ("cpp", "class A {\n public:\n  int a;\n};\nclass B {\n public:\n  int b;\n};\nint f() {║", "\n  return 1;\n}"),
        # a line that no single step explains, and one that is no body
        ("javascript", TWOS + "a = b║", "\n    .c()\n    .d()"),
        ("java", TWOS + "f(║", "\n    a,\n    b);"),
        ("python", FOURS + "x = f(║", "a,\n      b)"),
        ("python", FOURS + "if x:║", "\n  y\n     z"),
        # an expression or a signature that goes on two steps deeper
        ("cpp", TWOS + "f({║", "\n    a,\n    b\n});"),
        ("cpp", TWOS + "int f() {\n  ║", "return {\n      a,\n      b};\n}"),
        ("javascript", TWOS + "x = a\n  ? () =>║", "\n      b()"),
        ("objective-c", TWOS + "+ (A *)get:║", "\n    (B *)b"),
        # where columns are syntax
        ("yaml", "a:\n    b: 1\nc:\n    d: 1\nsteps:║", "\n  - run: make\n    name: build"),
        # eight columns as a tab
        ("c", "int f()\n{\n    for (;;) {\n\t║\n    }\n}\n", "if (i)\n\t    g(i);"),
        # the depth of the first line is the model's
        ("python", "def f():  # noqa\n║", "    return 1"),
        ("haskell", "main = do\n║", '  putStrLn "x"'),
        ("markdown", "- a\n║", "  - b"),
    ],
)
def test_the_model_s_indentation_is_left_alone(language: str, marked: str, text: str) -> None:
    assert suggested(marked, text, language) == marked.replace("║", f"⟦{text}⟧")


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [("x = ║", " 1", "1"), ("x =║", " 1", " 1"), ("x = 1 ║", " # why", " # why"), ("    ║", " return x", " return x")],
)
def test_no_second_space(marked: str, text: str, inserted: str) -> None:
    assert filtered(drop_doubled_space, marked, text) == marked.replace("║", f"⟦{inserted}⟧")


IF = "class A:\n    def f():\n        for a in b:\n            while c:\n                "


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        (IF + "if d:║", "\n" + " " * 24 + "e()\n" + " " * 20 + "else:\n" + " " * 24 + "g()", "\n" + " " * 24 + "e()"),
        (IF + "║", "if d:\n" + " " * 24 + "e()\n" + " " * 20 + "else:", "if d:\n" + " " * 24 + "e()"),
        (IF + "║", "if d:\n" + " " * 20 + "e()\n" + " " * 16 + "else:", None),
        (IF + "║", "if d:\n" + " " * 20 + "e()\n" + " " * 12 + "h()", None),  # back to a level of the document
        (IF + "║", "x()\n" + " " * 14 + "y()\nz()", "x()"),
        ("if a:║", "\n    b(c,\n      d)\n    e()", None),
        ("if a:║", '\n    """B.\n  C.\n    """\n    e()', None),
        ("if a:║", "\n    b = \\\n  c\n  # d\n    e()", None),
        ("x = f(║", "\n    a,\n  b)", None),
        ("║", "if a:\n    b\n  c", "if a:\n    b"),
        ("if a:\n    b\n  c\n║", "d\ne", None),  # the document's own fault
        # behind a line that closes a bracket, or a comment, a block of further above goes on
        ("def f(\n    a,\n):\n    ║", "b(\n        a,\n    )\n    return b", None),
        ("if a:\n    if b:\n        c()\n# d\n        ║", "e()\n    f()", None),
    ],
)
def test_end_before_a_dedent_to_no_open_block(marked: str, text: str, inserted: str | None) -> None:
    kept = text if inserted is None else inserted
    assert filtered(end_before_broken_dedent, marked, text) == marked.replace("║", f"⟦{kept}⟧" if kept else "║")


def test_only_where_indentation_makes_the_blocks() -> None:
    assert filtered(end_before_broken_dedent, "║", "if a {\n    b\n  c", "rust") == "⟦if a {\n    b\n  c⟧"


LINES = st.recursive(
    st.sampled_from(["x", "x(\n    x\n)", "def x(\n    x,\n):\n    return x(\n        x\n    )"]),
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
    assert filtered(end_before_broken_dedent, marked, text) == marked.replace("║", f"⟦{text}⟧" if text else "║")


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


@pytest.mark.parametrize("behind", ["b", "-x", "!x", "$b", "*b", "&b", "= 1", "<b>", "'c'"])
def test_the_space_before_what_follows_stays(behind: str) -> None:
    assert filtered(drop_trailing_space, f"a ║{behind}", "c ") == f"a ⟦c ⟧{behind}"


@pytest.mark.parametrize("behind", [",", ";", ")", "]", "}", ".", ":", " b"])
def test_there_is_no_space_before_punctuation_nor_two(behind: str) -> None:
    assert filtered(drop_trailing_space, f"a ║{behind}", "c ") == f"a ⟦c⟧{behind}"


def test_crlf_stays_crlf() -> None:
    assert filtered(use_line_ends, "if x:║\r\ny\r\n", "\n    b") == "if x:⟦\r\n    b⟧\r\ny\r\n"
    assert filtered(use_line_ends, "a\r\nif x:║", "\n    b") == "a\r\nif x:⟦\r\n    b⟧"
    assert filtered(use_line_ends, "if x:║", "\n    b") == "if x:⟦\n    b⟧"

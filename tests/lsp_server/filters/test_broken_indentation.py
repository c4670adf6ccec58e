"""Blocks as Python allows them."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.broken_indentation import cut_broken_indentation
from tests.lsp_server.filters.golden import filtered

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

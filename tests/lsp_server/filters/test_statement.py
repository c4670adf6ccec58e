"""The statement whose brackets a suggestion has to fit: the outermost that is in sight from end to end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.closers import keep_balance
from lsp_server.filters.cursor_context import CursorContext
from lsp_server.filters.statement import _BLANK, _LONGEST_REMEMBERED, _MOST_REMEMBERED, Statement, _Measures
from tests.lsp_server.filters.golden import filtered, place

FAR = 150  # lines, more than are in sight


def inside(marked: str, *, far_above: bool = True, far_below: bool = True) -> str:
    """The marked lines in a block so long that its ends are out of sight."""
    filler = "    f();\n" * FAR
    return f"impl A {{\n{filler * far_above}{marked}{filler * far_below}}}\n"


@pytest.mark.parametrize(
    ("marked", "head", "below"),
    [
        ("x = f(║)\ny = 1\n", "x = f(", "\n"),
        ("a\nf(\n  1,\n  ║\n)\nb\n", "f(\n  1,\n  ", "\n)\n"),
        ("║\nf()\n", "", "\n"),
        # what begins or ends out of sight is left out
        (inside("    if x {\n        ║\n    }\n"), "    if x {\n        ", "\n    }"),
        (inside("    if x {║}\n"), "    if x {", "\n"),
        (inside("    if x {║}\n", far_above=False), "    if x {", "\n"),
        (inside("    if x {║}\n", far_below=False), "    if x {", "\n"),
    ],
)
def test_goes_from_end_to_end(marked: str, head: str, below: str) -> None:
    statement = Statement.around(place(marked, "rust"))
    assert (statement.head, statement.below.rstrip("\n")) == (head, below.rstrip("\n"))


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_its_lines_end_in_a_newline(line_end: str) -> None:
    statement = Statement.around(place("a\nf(\n  1,\n  ║\n)\nb\n".replace("\n", line_end)))
    assert (statement.head, statement.below.rstrip("\n")) == ("f(\n  1,\n  ", "\n)")


LINES = st.sampled_from(["", "a", "}", "  b", "  }", "    c", "    )", "\td"])


def test_measures_are_remembered_within_bounds() -> None:
    measures = _Measures()
    lines = [f"{' ' * (number % 9)}}}x{number}\n" for number in range(3 * _MOST_REMEMBERED)]
    assert [measures[line] for line in lines] == [(number % 9, _BLANK) for number in range(len(lines))]
    assert lines[-1] in measures
    assert len(measures) <= _MOST_REMEMBERED
    long = "  x" + "y" * _LONGEST_REMEMBERED
    assert measures[long] == (2, 2)
    assert long not in measures


@given(st.lists(st.sampled_from(["a", "", '"""']), max_size=4), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_a_text_ends_as_its_last_line_does_without_its_end(lines: list[str], line_end: str, ended: bool) -> None:
    below = tuple(line + line_end for line in lines[:-1]) + tuple(line + line_end * ended for line in lines[-1:])
    statement = Statement.around(CursorContext("(", "", (), below, to_end=True))
    shown = [line.rstrip("\r\n") for line in below]
    whole = shown[: next((index for index, line in enumerate(shown) if line), None)]
    assert statement.below == "\n".join(("", *whole))


def test_is_all_that_is_in_sight_where_nothing_begins() -> None:
    statement = Statement.around(place("]\n" * FAR + "║\n" + "]\n" * FAR))
    assert 0 < statement.head.count("]") == statement.below.count("]") < FAR


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        # the `}` behind the cursor closes the `{` before it, not the block around them
        ("    if x {║assert!(n > 0);}\n", ":?}; MAX", "    if x {⟦:?⟧assert!(n > 0);}\n"),
        ("    if x { ║ }\n", "g(); }\n    }", "    if x { ⟦g(); ⟧ }\n"),
        ("    if x {\n        ║\n    }\n", "g();\n    }\n}", "    if x {\n        ⟦g();\n    ⟧\n    }\n"),
        # what is open is closed
        ("    if x {\n        ║\n", "g();\n    }", "    if x {\n        ⟦g();\n    }⟧\n"),
        ("    if f(║\n", "x) {", "    if f(⟦x) {⟧\n"),
    ],
)
@pytest.mark.parametrize("far_above", [True, False])
@pytest.mark.parametrize("far_below", [True, False])
def test_balance_in_a_long_block(marked: str, text: str, expected: str, far_above: bool, far_below: bool) -> None:
    whole = inside(marked, far_above=far_above, far_below=far_below)
    expected = inside(expected, far_above=far_above, far_below=far_below)
    assert filtered(keep_balance, whole, text, "rust") == expected


@pytest.mark.parametrize(("marked", "wants"), [("    if x {║}\n", False), ("    if x {║\n", True)])
def test_wants_closer(marked: str, wants: bool) -> None:
    assert Statement.around(place(inside(marked), "rust")).wants_closer == wants

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.manners.balance import closes_unopened, faults


@pytest.mark.parametrize(
    ("language", "text", "closers", "strings", "openers"),
    [
        ("python", "f(a[1])", 0, 0, 0),
        ("python", "f(a))", 1, 0, 0),
        ("python", "f(a]", 1, 0, 1),
        ("python", "{f(a}", 0, 0, 1),  # reaches past what was left open
        ("python", "'(' # )", 0, 0, 0),
        ("python", '"""\n)\n"""', 0, 0, 0),
        ("python", '"""\n)', 0, 1, 0),
        ("python", "x = 'a", 0, 1, 0),
        ("python", "'", 0, 1, 0),
        ("rust", "'a '(' \"b", 0, 1, 0),
        ("typescript", "`\n)` // )", 0, 0, 0),
        ("c", "/* ) */ '\\'' )", 1, 0, 0),
        ("made-up", "it's ok :)", 1, 0, 0),
    ],
)
def test_faults(language: str, text: str, closers: int, strings: int, openers: int) -> None:
    assert faults(text, language) == (closers, strings, openers)


@given(head=st.text("()[]{}"), tail=st.text("()[]{}"), closer=st.sampled_from(")]}"))
def test_where_every_bracket_is_closed_another_closer_is_one_too_many(head: str, tail: str, closer: str) -> None:
    now, then = faults(head + tail, "python"), faults(head + closer + tail, "python")
    assert now.openers or then.closers > now.closers


@pytest.mark.parametrize(("text", "place"), [("f(a)", None), ("a)", 1), ("(a))", 3), ("')'", None), ("{(}", None)])
def test_closes_unopened(text: str, place: int | None) -> None:
    assert closes_unopened(text, "python") == place

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.manners.balance import Balance, closes_unopened, faults


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
        ("python", '"""\n)\\', 0, 1, 0),
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


# Pieces of tokens, so that what is put between two texts ends, begins and joins tokens of theirs.
PIECES = [*"()[]{}'\"`/*#\\\n ab", '"""', "'''", "//", "/*", "*/", "'\\u{10ffff}'", " " * 12]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(
    before=TEXTS,
    text=TEXTS,
    behind=TEXTS,
    replaced=st.integers(0, 12),
    language=st.sampled_from(["python", "rust", "go", "c", "made-up"]),
)
def test_what_is_put_between_counts_as_if_all_were_looked_at_again(
    before: str, text: str, behind: str, replaced: int, language: str
) -> None:
    balance = Balance(before, behind, language)
    replaced = min(replaced, len(behind))
    assert balance.now == faults(before + behind, language)
    assert balance.with_text(text, replaced) == faults(before + text + behind[replaced:], language)

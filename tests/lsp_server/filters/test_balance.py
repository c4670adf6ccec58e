from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsp_server.editing.languages import language
from lsp_server.filters import balance as balance_module
from lsp_server.filters.balance import _LOOK_AHEAD, Balance, Faults, _Count, _Found, closes_unopened


def faults(text: str, language_id: str) -> Faults:
    """Of the whole text, looked at from end to end."""
    return _Count().with_more(language(language_id).tokens.findall(text)).faults


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
    assert Balance(text, "", language).now == (closers, strings, openers)


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
UNSETTLED = st.integers(_LOOK_AHEAD, 30)  # few, so that much of such short texts is settled


@given(
    before=TEXTS,
    text=TEXTS,
    behind=TEXTS,
    replaced=st.integers(0, 12),
    language=st.sampled_from(["python", "rust", "go", "c", "made-up"]),
    unsettled=UNSETTLED,
)
def test_what_is_put_between_counts_as_if_all_were_looked_at_again(
    before: str, text: str, behind: str, replaced: int, language: str, unsettled: int
) -> None:
    with mock.patch.object(balance_module, "_UNSETTLED", unsettled):
        balance = Balance(before, behind, language)
    replaced = min(replaced, len(behind))
    assert balance.now == faults(before + behind, language)
    assert balance.with_text(text, replaced) == faults(before + text + behind[replaced:], language)


def tokens_of(balance: Balance) -> tuple[object, ...]:
    """All that a balance has found, but for how far it is settled."""
    return balance._found.settled, balance._found.rest, dict(balance._found.begins)


@example(texts=["[x]", ""], keys=[(0, 1, "(", "")], language="python", unsettled=12)  # typed over another
@given(
    texts=st.lists(TEXTS, min_size=2, max_size=6),
    keys=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), TEXTS, TEXTS), min_size=1, max_size=6),
    language=st.sampled_from(["python", "rust", "go", "c", "made-up"]),
    unsettled=UNSETTLED,
)
def test_from_key_to_key_it_is_as_if_all_were_looked_at_again(
    texts: list[str], keys: list[tuple[int, int, str, str]], language: str, unsettled: int
) -> None:
    """Each key goes somewhere or stays (where the number is beyond the text), and types on both sides of the place."""
    before, behind = "".join(texts[1:]), texts[0]
    with mock.patch.object(balance_module, "_UNSETTLED", unsettled):
        balance = Balance(before, behind, language)
        for place, deleted, typed, closed in keys:
            text = before + behind
            place = place if place < len(text) // 2 else len(before)
            before, behind = text[:place] + typed, closed + text[place + (deleted if deleted < 5 else 0) :]
            balance = Balance(before, behind, language, balance)
            if unsettled == _LOOK_AHEAD:  # with more, what was settled may stay so
                assert balance._found == Balance(before, behind, language)._found
            assert balance.now == faults(before + behind, language)
            assert balance.with_text("()'", 1) == faults(before + "()'" + behind[1:], language)


def test_an_earlier_text_in_another_language_tells_nothing() -> None:
    text = "# (\n" + "and more, so that it is settled" * 20
    assert Balance(text, "", "c", Balance(text, "", "python")).now == faults(text, "c") != faults(text, "python")


@pytest.mark.parametrize(("deleted", "typed"), [(0, "h(1)\n    "), (50, "")])
def test_what_a_key_leaves_as_it_was_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, deleted: int, typed: str
) -> None:
    above, below = "f(a, [b])\n" * 100, "g({c})\n" * 100
    earlier = Balance(above, below, "python")
    again, looked_at = _Found.again, []

    def noting(found: _Found, tokens: Iterable[re.Match[str]], place: int, since: int) -> tuple[list[Any], int]:
        new, same = again(found, tokens, place, since)
        looked_at.extend(new)
        return new, same

    monkeypatch.setattr(_Found, "again", noting)
    Balance(above[: len(above) - deleted] + typed, below, "python", earlier)
    assert "".join(token.group() for token in looked_at) in ("([])" * 100)[-4 * 20 - 1 :] + "()"

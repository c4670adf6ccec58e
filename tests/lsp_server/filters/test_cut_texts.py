"""Texts that a limit has cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.cut_texts import end_loop, end_with_whole_statement, is_within_token
from tests.lsp_server.filters.golden import filtered, suggested

LITERALS = [
    *("0xFFFFFFFF", "1000000007", "1_000_000_000", "0.000000001", "#ffffffff", "[0.0, 0.0, 0.0, 0.0]", "10'000'000"),
    *('"(%s, %s, %s, %s)"', "(text,text,int,int,int)", "{0x00, 0x00, 0x00, 0x00}", "None, None, None, None"),
    *("00000000-0000-0000-0000-000000000000", "auto auto auto auto", "&nbsp;&nbsp;&nbsp;", "aaaaaaaaaaaaaaaa"),
]


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("language", ["python", "c", "css", "sql", "made-up"])
def test_what_the_model_ended_may_repeat_itself(literal: str, language: str) -> None:
    assert suggested("x = ║", literal, language) == f"x = ⟦{literal}⟧"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a.append(x)\na.append(x)\na.append(x)", "a.append(x)\n"),
        ("a.append(x)\na.append(x)\na.app", "a.append(x)\n"),
        ("b = 1\n" + "if abc:\n    f()\n" * 4, "b = 1\nif abc:\n    f()"),
        ("self.x, self.x, self.x, sel", "self.x, "),
        ("------------------", "-"),
        # one number or word
        ("0xFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFF"),
        ("1_000_000_000_000", "1_000_000_000_000"),
        ("ha_ha_ha_ha_ha_ha", "ha_ha_ha_ha_ha_ha"),
        # what repeats itself somewhere, but not to the end
        ("x x x x x x x x x x y", "x x x x x x x x x x y"),
        ("f(a, b)\nf(a, c)\nf(a, d)", "f(a, b)\nf(a, c)\nf(a, d)"),
        ("0, 0, 0", "0, 0, 0"),
        ("", ""),
    ],
)
def test_a_loop_goes_on_to_the_limit(text: str, kept: str) -> None:
    assert filtered(end_loop, "║", text, is_cut=True) == (f"⟦{kept}⟧" if kept else "║")
    assert filtered(end_loop, "║", text) == (f"⟦{text}⟧" if text else "║")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a = 1\n    return a", "a = 1\n    return a"),
        ("a = 1\n    if a:", "a = 1"),  # a header without a body
        ("a = 1\n    if a:\n        for b in a:", "a = 1"),
        ("a = 1\n    if a:\n        b = (1,\n             2,", "a = 1"),
        ("a = 1\n    @property", "a = 1"),
        ("a = 1\n    ", "a = 1"),
        ("if a:", "if a:"),  # one line
        ("if a:\n        if b:", "if a:"),
        ("call(\n        1,\n    )", "call(\n        1,\n    )"),
        ("call(\n        1,", "call("),
        ("\n    a = 1\n    if a:", "\n    a = 1"),
        ("\n    if a:", "\n    if a:"),  # the first line with text
        ("let a = 1;\n    if a {\n        b();", "let a = 1;"),
        ("let a = 1;\n    if a {\n        b();\n    }", "let a = 1;\n    if a {\n        b();\n    }"),
    ],
)
def test_a_cut_block_ends_with_a_whole_statement(text: str, kept: str) -> None:
    assert filtered(end_with_whole_statement, "║", text, is_cut=True) == f"⟦{kept}⟧"
    assert filtered(end_with_whole_statement, "║", text) == f"⟦{text}⟧"


@pytest.mark.parametrize("token", ["1000000007", "0xFFFF", "1.5", "1e-5", "10'000", "1_000", "name_2", "Zürich"])
def test_every_place_inside_of_a_word_or_number_is_within_it(token: str) -> None:
    text = f"x = {token}; y"
    within = {place for place in range(len(text) + 1) if is_within_token(text, place)}
    assert within == set(range(5, 4 + len(token)))


@given(st.text("ab1.'e+- (", max_size=12), st.integers(0, 12))
def test_a_word_is_never_cut(text: str, place: int) -> None:
    if 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum():
        assert is_within_token(text, place)

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.filters.likely import Likely, likely_part, whole
from protocol.messages import Completion, FinishReason, TokenLogprob, Usage

USAGE = Usage(1, 1, 1, 1, 0.0, 0.0, 0.0)


def completion(
    *tokens: tuple[str, float], text: str | None = None, reason: FinishReason = "eos", mean: float = -1.0
) -> Completion:
    """Of tokens, each with its probability."""
    spelled = tuple(TokenLogprob(token, math.log(probability)) for token, probability in tokens)
    said = "".join(token for token, _ in tokens) if text is None else text
    return Completion(said, reason, USAGE, mean, tokens=spelled)


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        ([("return", 0.9), (" value", 0.9)], "return value"),  # 5.4 expected characters, then 9.7
        ([("return", 0.9), (" value", 0.4)], "return"),  # 5.4, then 4.3
        ([("return", 0.9), (" value", 0.4), (".name", 1.0), ("_of", 1.0)], "return value.name_of"),  # pays again
        ([("re", 0.9), ("turn", 0.3), (" x", 0.9)], "return x"),  # never within a word
        ([("x", 0.2), (" = 1", 0.1)], "x"),  # what is left is unlikely too, and may be held back
        ([("(", 0.9), ("value", 0.1)], "("),
        ([("\n        ", 0.9), ("pass", 0.5)], "\n        pass"),  # white space alone is no suggestion
        ([("if a:", 0.9), ("\n        ", 0.8), ("pass", 0.4)], "if a:"),  # white space counts as one character
    ],
)
def test_kept_is_the_part_with_the_most_expected_characters(tokens: list[tuple[str, float]], kept: str) -> None:
    found = completion(*tokens)
    assert likely_part(found).text == kept


def test_percent_is_the_mean_of_the_kept_tokens() -> None:
    found = completion(("return", 0.8), (" ", 0.2), ("x", 0.01), mean=-3.0)
    assert likely_part(found) == Likely("return", pytest.approx(80), is_cut=True, probability=pytest.approx(0.8))
    assert whole(found) == Likely(found.text, pytest.approx(100 * math.exp(-3)))


def test_a_block_ends_with_a_line() -> None:
    certain = [("a = 1", 0.9), ("\n    ", 0.9), ("value = compute", 0.9)]
    assert likely_part(completion(*certain, ("(first)", 0.2))).text == "a = 1"  # no half line below the first
    assert likely_part(completion(*certain, ("(first)\n    b", 0.7), (" = 2", 0.1))).text == "a = 1\n    value = compute(first)"


def test_text_that_was_cut_ends_before_its_last_tokens() -> None:
    tokens = [("a", 0.9), (" + b", 0.9), ("\nreturn", 0.9)]
    assert likely_part(completion(*tokens, reason="length")).text == "a + b"
    assert likely_part(completion(*tokens, text="a + ")).text == "a + "  # within a token


def test_without_probabilities_it_is_all_of_the_text() -> None:
    assert likely_part(Completion("a b", "eos", USAGE)) == Likely("a b", None)
    assert likely_part(Completion("a b", "eos", USAGE, -1.0)) == Likely("a b", pytest.approx(100 / math.e))
    assert likely_part(Completion("a b", "eos", USAGE, tokens=(TokenLogprob("a", 0.0),))) == Likely("a b", None)
    assert likely_part(completion(("a", 0.9), text="a b")).text == "a b"  # tokens of less than the text
    assert likely_part(completion(("a", 0.5), text="")).text == ""


@given(
    tokens=st.lists(st.tuples(st.sampled_from(["a", "bc", " ", " d", "\n  ", "(", "", "é"]), st.floats(1e-6, 1.0)), max_size=12),
    cut=st.integers(0, 24),
)
def test_kept_is_a_beginning_and_never_empty_without_need(tokens: list[tuple[str, float]], cut: int) -> None:
    said = "".join(token for token, _ in tokens)[:cut]
    kept = likely_part(completion(*tokens, text=said))
    assert said.startswith(kept.text)
    assert bool(kept.text.strip()) == bool(said.strip())
    assert kept.percent is not None
    assert 0 <= kept.percent <= 100.0001

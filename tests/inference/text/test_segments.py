from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from inference.text.tokenization import MAX_SEGMENT_CHARS, RULES, CutRule, choose_rule, split_segments

SOURCE = "class A:\n    def f(self):\n\n        return 1\n\n\nx = 2\n"


@pytest.mark.parametrize(
    ("rule", "blocks"),
    [
        ("before_lines", ["class A:\n", "    def f(self):\n\n", "        return 1\n\n\n", "x = 2\n"]),
        ("before_nonblank_lines", ["class A:\n", "    def f(self):\n\n", "        return 1\n\n\n", "x = 2\n"]),
        ("within_indentation", ["class A:\n   ", " def f(self):\n\n       ", " return 1\n\n", "\nx = 2\n"]),
    ],
)
def test_blocks_of_source(rule: str, blocks: list[str]) -> None:
    assert list(split_segments(SOURCE, named(rule))) == blocks


def test_digits_behind_indentation() -> None:
    assert list(split_segments("[\n  1\n]", named("within_indentation"))) == ["[\n  ", "1", "\n]"]
    assert list(split_segments("[\n  1\n]", named("within_all_indentation"))) == ["[\n ", " 1", "\n]"]


def test_white_space_lines() -> None:
    text = "a\n  \n  b"
    assert list(split_segments(text, named("before_lines"))) == ["a\n", "  \n", "  b"]
    assert list(split_segments(text, named("before_nonblank_lines"))) == ["a\n  \n", "  b"]
    assert list(split_segments(text, named("within_indentation"))) == ["a\n  \n ", " b"]


def named(name: str) -> CutRule:
    return next(rule for rule in RULES if rule.__name__ == name)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@given(text=st.text(alphabet="ab1 \t\n\r(é\x1c", max_size=60))
def test_blocks_are_the_text(rule: CutRule, text: str) -> None:
    blocks = list(split_segments(text, rule))
    assert "".join(blocks) == text
    assert all(blocks)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("run", ["\n", "\n ", " ", "\t\r\n"])
def test_a_long_run_of_white_space_is_read_once(rule: CutRule, run: str) -> None:
    """Trying it from each of its characters would take hours."""
    text = "x" + run * 2**20
    assert sum(map(len, split_segments(text, rule))) == len(text)


def test_long_lines_are_cut_in_pieces_of_bounded_size() -> None:
    minified = "x" * (3 * MAX_SEGMENT_CHARS + 5)
    blocks = list(split_segments(f"a\n{minified}\nb", named("before_lines")))
    assert max(map(len, blocks)) == MAX_SEGMENT_CHARS
    assert "".join(blocks) == f"a\n{minified}\nb"
    grown = list(split_segments(f"a\n{minified}yy\nb", named("before_lines")))
    assert grown[:4] == blocks[:4]


def test_gpt2_joins_the_last_space_with_a_number() -> None:
    gpt2 = ByteLevel(add_prefix_space=False)
    rule = choose_rule(lambda text: [piece for piece, _ in gpt2.pre_tokenize_str(text)])
    assert rule.__name__ == "within_all_indentation"


def test_pre_tokenizer_that_no_rule_fits_gets_the_default() -> None:
    assert choose_rule(lambda text: [text]).__name__ == "before_nonblank_lines"

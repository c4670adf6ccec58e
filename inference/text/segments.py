"""Finds where text can be cut into segments that are tokenized and cached one by one.

A pre-tokenizer splits text into pieces before BPE merges within each. A cut between two pieces that leaves the
pieces on both sides unchanged changes no token; which cuts these are depends on how the pre-tokenizer treats runs of
white space. Each rule below suits one kind, and `choose_rule` returns the first that a given pre-tokenizer satisfies
on samples.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import chain

MAX_SEGMENT_CHARS = 4096  # a longer segment (a minified line) is cut at this length, even within a piece

CutRule = Callable[[str], Iterator[int]]

_NEWLINE_BEFORE_LINE = re.compile(r"[\r\n](?=[^\r\n])")
_NEWLINE_BEFORE_TEXT = re.compile(r"[\r\n](?=[^\S\r\n]*\S)")
_SPACE_FROM_NEWLINE = re.compile(r"[\r\n][^\S\x1c-\x1f]*")  # in tokenizers \s excludes U+001C-1F


def before_lines(text: str) -> Iterator[int]:
    """Before each line that follows a newline: for pre-tokenizers that keep every newline apart (DeepSeek-Coder)."""
    return (match.end() for match in _NEWLINE_BEFORE_LINE.finditer(text))


def before_nonblank_lines(text: str) -> Iterator[int]:
    r"""Before each line that is not blank: for the pattern `\s*[\r\n]+` (Qwen2, Llama 3, GPT-4 and their like)."""
    return (match.end() for match in _NEWLINE_BEFORE_TEXT.finditer(text))


def within_indentation(text: str) -> Iterator[int]:
    r"""Before the last white space of a run with a newline: for the pattern `\s+(?!\S)|\s+` behind split digits.

    That last character joins the following word, or forms a piece (StarCoder2, SmolLM). Before a digit it stays with
    the run, and the cut is before the digit.
    """
    for end in _ends_of_space(text):
        digit_follows = unicodedata.category(text[end]).startswith("N")
        cut = end if digit_follows else end - 1
        if cut > 0:
            yield cut


def within_all_indentation(text: str) -> Iterator[int]:
    """As `within_indentation`, before digits too: for the same pattern alone (GPT-2, Mellum)."""
    return (end - 1 for end in _ends_of_space(text) if end > 1)


def _ends_of_space(text: str) -> Iterator[int]:
    """Where text follows white space with a newline.

    A lookahead for that text would try a run at the end of `text` from each of its characters.
    """
    ends = (match.end() for match in _SPACE_FROM_NEWLINE.finditer(text))
    return (end for end in ends if end < len(text))


RULES: tuple[CutRule, ...] = (before_lines, before_nonblank_lines, within_indentation, within_all_indentation)

PROBES = (
    "def f(x):\n    return x\n\n\nclass A:\n\tb = 1\n\t\tc\n",
    "a\n\n   \n  b\n \n\n\tc\r\n\r\n  d\r\n e;\n}\n;\n\n",
    "x = [\n    1,\n  22,\n3\n]\n\n  4\n\n5  \n\n  'it''s'\n'll\n",
    '  \n   é\n\n    中文\n  \t\n\t(a)\n\n\n  """\n',
)


def choose_rule(pre_tokens: Callable[[str], list[str]]) -> CutRule:
    """The first rule whose segments, concatenated, have the pieces of the whole text.

    A pre-tokenizer that satisfies none gets `before_nonblank_lines`: its segments then define the tokenization, the
    same in every prompt, instead of only speeding it up.
    """
    for rule in RULES:
        if all(_agrees(rule, pre_tokens, probe) for probe in PROBES):
            return rule
    return before_nonblank_lines


def _agrees(rule: CutRule, pre_tokens: Callable[[str], list[str]], text: str) -> bool:
    in_blocks = [piece for block in split_segments(text, rule) for piece in pre_tokens(block)]
    return in_blocks == pre_tokens(text)


def is_one_segment(text: str) -> bool:
    """Whether no rule cuts `text`, since each cuts behind a newline."""
    return "\n" not in text and "\r" not in text and len(text) <= MAX_SEGMENT_CHARS


def split_segments(text: str, rule: CutRule) -> Iterator[str]:
    """The segments of `text`, complete and in order; none is longer than MAX_SEGMENT_CHARS."""
    start = 0
    for cut in chain(rule(text), (len(text),)):
        while cut - start > MAX_SEGMENT_CHARS:
            yield text[start : start + MAX_SEGMENT_CHARS]
            start += MAX_SEGMENT_CHARS
        if cut > start:
            yield text[start:cut]
            start = cut

"""Where text can be cut into blocks that are tokenized, and remembered, one by one.

A pre-tokenizer splits text into pieces before BPE merges within each. A cut that falls between two pieces, and
leaves the pieces on either side as they are, changes no token; which cuts those are depends on how the
pre-tokenizer treats runs of white space. Each rule below is right for one kind, and `choose_rule` finds the
first that a given pre-tokenizer agrees with on samples.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import chain

MAX_BLOCK_CHARS = 4096  # a longer block (a minified line) is cut every so many characters, pre-token or not

CutRule = Callable[[str], Iterator[int]]

_NEWLINE_BEFORE_LINE = re.compile(r"[\r\n](?=[^\r\n])")
_NEWLINE_BEFORE_TEXT = re.compile(r"[\r\n](?=[^\S\r\n]*\S)")
_SPACE_FROM_NEWLINE = re.compile(r"[\r\n][^\S\x1c-\x1f]*(?=([\S\x1c-\x1f]))")  # U+001C to U+001F are not \s there


def before_lines(text: str) -> Iterator[int]:
    """Before each line that follows a newline: for pre-tokenizers that keep every newline apart (DeepSeek-Coder)."""
    return (match.end() for match in _NEWLINE_BEFORE_LINE.finditer(text))


def before_nonblank_lines(text: str) -> Iterator[int]:
    r"""Before each line with text in it: for the pattern `\s*[\r\n]+` (Qwen2, Llama 3, GPT-4 and their like)."""
    return (match.end() for match in _NEWLINE_BEFORE_TEXT.finditer(text))


def within_indentation(text: str) -> Iterator[int]:
    r"""Before the last white space of a run with a newline: for the pattern `\s+(?!\S)|\s+` (GPT-2, StarCoder2).

    That last character goes with the word that follows, or stands alone. Where digits are split off first, it stays
    with the run, and the cut is before the digit.
    """
    for match in _SPACE_FROM_NEWLINE.finditer(text):
        digit_follows = unicodedata.category(match.group(1)).startswith("N")
        cut = match.end() if digit_follows else match.end() - 1
        if cut > 0:
            yield cut


RULES: tuple[CutRule, ...] = (before_lines, before_nonblank_lines, within_indentation)

PROBES = (
    "def f(x):\n    return x\n\n\nclass A:\n\tb = 1\n\t\tc\n",
    "a\n\n   \n  b\n \n\n\tc\r\n\r\n  d\r\n e;\n}\n;\n\n",
    "x = [\n    1,\n  22,\n3\n]\n\n  4\n\n5  \n\n  'it''s'\n'll\n",
    '  \n   é\n\n    中文\n  \t\n\t(a)\n\n\n  """\n',
)


def choose_rule(pre_tokens: Callable[[str], list[str]]) -> CutRule:
    """The first rule whose blocks have, one after another, the pieces of the whole text.

    A pre-tokenizer that agrees with none gets `before_nonblank_lines`: its blocks are then a definition of
    their own, the same in every prompt, rather than an optimisation.
    """
    for rule in RULES:
        if all(_agrees(rule, pre_tokens, probe) for probe in PROBES):
            return rule
    return before_nonblank_lines


def _agrees(rule: CutRule, pre_tokens: Callable[[str], list[str]], text: str) -> bool:
    in_blocks = [piece for block in split_blocks(text, rule) for piece in pre_tokens(block)]
    return in_blocks == pre_tokens(text)


def split_blocks(text: str, rule: CutRule) -> Iterator[str]:
    """The blocks of `text`, in order and complete; none is longer than MAX_BLOCK_CHARS."""
    start = 0
    for cut in chain(rule(text), (len(text),)):
        while cut - start > MAX_BLOCK_CHARS:
            yield text[start : start + MAX_BLOCK_CHARS]
            start += MAX_BLOCK_CHARS
        if cut > start:
            yield text[start:cut]
            start = cut

"""Brackets of code, by Pygments, and closers that the editor inserted on its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lsp_server.documents.languages import language

if TYPE_CHECKING:
    from pygments.lexer import Lexer


CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
OPENER_OF = {closer: opener for opener, closer in CLOSER_OF.items()}
BRACKETS = frozenset(CLOSER_OF | OPENER_OF)
QUOTES = "\"'`"
CLOSING = frozenset(")]}" + QUOTES)
_TRIPLE_QUOTES = frozenset(quote * 3 for quote in QUOTES)
_TRIPLE_QUOTE = re.compile("|".join(sorted(_TRIPLE_QUOTES)))
_BRACKET = re.compile(r"[()\[\]{}]")
# Between two letters, but neither behind an escape (`\t'`) nor behind the prefix of a string, such as `b` and `u8`.
APOSTROPHE = re.compile(r"(?<=\w)(?<!\\\w)(?<!\b[bBrRuUfFLNEX])(?<!\b(?:[bBfF][rR]|[rR][bBfF]|u8))'(?=\w)")
_ESCAPED = re.compile(r"\\.")
_MAYBE_INTERPOLATION = re.compile(r"(\$|#(?=\{))?([({])|[)}]")
_DEEPEST = 3  # interpolations in one another


def open_brackets(text: str) -> list[str]:
    """The closers that `text` lacks, innermost last; brackets in strings and comments count too."""
    wanted: list[str] = []
    for match in _BRACKET.finditer(text):
        bracket = match.group()
        if closer := CLOSER_OF.get(bracket):
            wanted.append(closer)
        elif wanted and wanted[-1] == bracket:
            wanted.pop()
    return wanted


def auto_closed_length(before: str, after: str) -> int:
    """How many code points of `after` only close what `before` opened, white space between them included.

    `before` is the increment, from the anchor to the cursor: its open brackets were opened since the anchor
    was laid, so the editor may have inserted their closers. Brackets opened inside of those may still be open:
    in `f(a[` before `)`, the `]` is yet to be typed. Trailing white space is not counted. An apostrophe within a
    word is no quote.
    """
    head = after.lstrip()
    if not head or head[0] not in CLOSING:
        return 0
    triple = head[:3]
    if triple in _TRIPLE_QUOTES and before.count(triple) % 2:
        return len(after) - len(head) + 3  # of a string that may have lines before this one
    wanted = open_brackets(before)
    line = APOSTROPHE.sub("", before[before.rfind("\n") + 1 :])
    heads = [line, _ESCAPED.sub("", line)]  # in a string, an escaped quote may open one of the text that it holds
    heads += [_TRIPLE_QUOTE.sub("", line), *_interpolated(line)]
    length = 0
    for index, character in enumerate(after):
        if character.isspace():
            continue
        if character in QUOTES and index == length and any(head.count(character) % 2 for head in heads):
            heads = [head + character for head in heads]
        elif character in wanted:
            while wanted.pop() != character:
                pass
        else:
            break
        length = index + 1
    return length


def _interpolated(line: str) -> list[str]:
    """What stands in each of the last `${`, `#{` and `$(` that are open: code in a string may use the same quotes."""
    opened: list[re.Match[str]] = []
    for found in _MAYBE_INTERPOLATION.finditer(line):
        if found.group(2):
            opened.append(found)
        elif opened:
            opened.pop()
    return [line[found.end() :] for found in opened if found.group(1)][-_DEEPEST:]


def is_auto_closed(before: str, gap: str) -> bool:
    """Whether `gap`, between the cursor and the frozen suffix, is nothing but auto-closed text or white space."""
    return not gap[auto_closed_length(before, gap) :].strip()


MOST_CHARS = 8_000
"""Lexing takes about 4 microseconds a character; longer texts are not lexed while a user waits."""


def code_brackets(text: str, language_id: str) -> Iterator[tuple[int, str]]:
    """Place and character of each bracket outside of comments and literals; of all, if the language has no lexer."""
    return ((place, one) for place, one, is_code in lexed_brackets(text, language_id) if is_code)


def lexed_brackets(text: str, language_id: str) -> Iterator[tuple[int, str, bool]]:
    """Place and character of each bracket, and whether it stands outside of comments and literals."""
    for start, kind, value in _tokens(text, language_id):
        if not (value.isalnum() or value.isspace()):
            is_code = not _is_literal(kind)
            yield from ((start + index, one, is_code) for index, one in enumerate(value) if one in BRACKETS)


def _tokens(text: str, language_id: str) -> Iterator[tuple[int, Any, str]]:
    lexer = _lexer(language(language_id).lexer)
    if lexer is None:
        return iter([(0, None, text)])
    return iter(lexer.get_tokens_unprocessed(text))


def _is_literal(kind: Any) -> bool:
    """Whether a token of this kind is part of a comment or a string; directives of a preprocessor are code."""
    from pygments.token import Comment, String

    return kind in String or (kind in Comment and kind not in Comment.Preproc and kind not in Comment.PreprocFile)


@cache
def _lexer(name: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=False) if name else None

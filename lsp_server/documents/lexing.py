"""Lexical structure by Pygments: code brackets, comments, strings, and closers that the editor inserted on its own."""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lsp_server.documents.documents import Document, Position, line_length
from lsp_server.documents.languages import language
from protocol.settings import SuggestIn

if TYPE_CHECKING:
    from pygments.lexer import Lexer


CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
OPENER_OF = {closer: opener for opener, closer in CLOSER_OF.items()}
QUOTES = "\"'`"
CLOSING = frozenset(")]}" + QUOTES)
_TRIPLE_QUOTES = frozenset(quote * 3 for quote in QUOTES)
_TRIPLE_QUOTE = re.compile("|".join(sorted(_TRIPLE_QUOTES)))
_BRACKET = re.compile(r"[()\[\]{}]")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
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
    line = _APOSTROPHE.sub("", before[before.rfind("\n") + 1 :])
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

_PARTNERS = CLOSER_OF | OPENER_OF


def code_brackets(text: str, language_id: str) -> Iterator[tuple[int, str]]:
    """Place and character of each bracket outside of comments and literals; of all, if the language has no lexer."""
    for start, kind, value in _tokens(text, language_id):
        if _literal(kind) is None and not (value.isalnum() or value.isspace()):
            yield from ((start + index, one) for index, one in enumerate(value) if one in _PARTNERS)


def literal_at(text: str, place: int, language_id: str) -> SuggestIn | None:
    """Whether the character at `place` is in a comment or a string; None if it is in neither."""
    found: SuggestIn | None = None
    for start, kind, value in _tokens(text, language_id):
        if start > place:
            break
        found = _literal(kind) if place < start + len(value) else None
    return found


def _tokens(text: str, language_id: str) -> Iterator[tuple[int, Any, str]]:
    lexer = _lexer(language(language_id).lexer)
    if lexer is None:
        return iter([(0, None, text)])
    return iter(lexer.get_tokens_unprocessed(text))


def _literal(kind: Any) -> SuggestIn | None:
    """What a token of this kind is part of; directives of a preprocessor are code."""
    from pygments.token import Comment, String

    if kind in String:
        return "strings"
    return "comments" if kind in Comment and kind not in Comment.Preproc and kind not in Comment.PreprocFile else None


@cache
def _lexer(name: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=False) if name else None


# Put at the place: a comment or string that is open there contains it, and one that ends there does not.
_PROBE = "x"
_COMMENT_ENDS = ("*/", "-->")


class Literals:
    """The comments and strings of one document, by its language's lexer."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._outside = [0]  # lines that begin in neither, ascending: scans begin at the last one before the place

    def edited(self, line: int) -> None:
        """Forget what an edit of this line may have changed."""
        del self._outside[bisect_right(self._outside, line) :]

    def at(self, place: Position) -> SuggestIn | None:
        """What the place is in; None if it is in neither."""
        lines = self._document.lines
        begin = max(self._outside[bisect_right(self._outside, place.line) - 1], self._nearest(place.line))
        above = "".join(lines[begin : place.line])
        line = lines[place.line][: line_length(lines[place.line])]
        before, behind = line[: place.column], line[place.column :]
        if place.line > begin and self._found(above, before + behind) is None:
            insort(self._outside, place.line)  # a place above may have come later
            above = ""
        return self._found(above + before, behind)

    def _found(self, before: str, behind: str) -> SuggestIn | None:
        """What the text behind `before` is in.

        A lexer may know a literal only by its end: the line's own, or one that is yet to be typed or stands below.
        """
        for end in (behind, *QUOTES, *_COMMENT_ENDS):
            found = literal_at(before + _PROBE + end, len(before), self._document.language_id)
            if found == "comments" or (found == "strings" and (end == behind or before.count(end) % 2)):
                return found
        return None

    def _nearest(self, line: int) -> int:
        """The first of the lines above that are worth lexing for a place in this one."""
        lines, chars = self._document.lines, 0
        while line > 0 and (chars := chars + len(lines[line - 1])) <= MOST_CHARS:
            line -= 1
        return line

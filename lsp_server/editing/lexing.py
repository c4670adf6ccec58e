"""Lexes text with Pygments: which brackets are code, and whether a place is in a comment or a string."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lsp_server.editing.brackets import CLOSER_OF, OPENER_OF
from lsp_server.editing.languages import language
from protocol.settings import SuggestIn

if TYPE_CHECKING:
    from pygments.lexer import Lexer

MOST_CHARS = 8_000
"""Lexing takes about 4 microseconds a character; longer texts are not lexed while a user waits."""

_PARTNERS = CLOSER_OF | OPENER_OF


def code_brackets(text: str, language_id: str) -> Iterator[tuple[int, str]]:
    """Place and character of each bracket outside of comments and literals; of all, if the language has no lexer."""
    for start, kind, value in _tokens(text, language_id):
        if _literal(kind) is None and not (value.isalnum() or value.isspace()):
            yield from ((start + index, one) for index, one in enumerate(value) if one in _PARTNERS)


def surplus_closers(text: str, language_id: str) -> int:
    """How many brackets close nothing; a closer reaches past openers of other kinds."""
    opened: list[str] = []
    surplus = 0
    for _, bracket in code_brackets(text, language_id):
        if bracket in CLOSER_OF:
            opened.append(bracket)
        elif _PARTNERS[bracket] in opened:
            while opened.pop() != _PARTNERS[bracket]:
                pass
        else:
            surplus += 1
    return surplus


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

"""The filters of texts that a limit has cut: loops, lines and words that are not whole."""

from __future__ import annotations

import re

from lsp_server.editing.brackets import OPENER_OF
from lsp_server.filters.cursor_context import CursorContext, Insertion

_LONGEST_PIECE = 240  # characters that a loop repeats
_LEAST_LOOP = 12  # characters of a loop
# A word, or a number with its digits' separators, fraction, exponent and sign of the exponent.
_TOKEN = re.compile(r"\d[\w.']*(?:(?<=[eE])[+-]\d+)?|\w+")


def is_within_token(text: str, place: int) -> bool:
    """Whether `place` lies inside of a word or a number."""
    if not 0 < place < len(text):
        return False
    begin = place
    while begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] in "_.'+-"):
        begin -= 1
    tokens = _TOKEN.finditer(text, begin)
    return any(token.start() < place < token.end() for token in tokens)


def end_loop(insertion: Insertion, _context: CursorContext) -> Insertion:
    """Keep one of the pieces that the text repeats until the limit cuts it: the model was in a loop.

    Digits and letters that repeat themselves within one number or word are none.
    """
    text = insertion.text
    if not insertion.is_cut:
        return insertion
    backwards = text[::-1]
    for length in range(1, min(_LONGEST_PIECE, len(text) // 2) + 1):
        if backwards[0] == backwards[length]:
            repeated = _common_length(backwards, backwards[length:])
            end, is_loop = len(text) - repeated, repeated >= 1.4 * length and repeated + length >= _LEAST_LOOP
            if is_loop and not is_within_token(text, end):
                return insertion.with_text(text[:end])
    return insertion


def _common_length(text: str, other: str) -> int:
    """The length of the text that both begin with."""
    return next((index for index, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))


def end_with_whole_statement(insertion: Insertion, _context: CursorContext) -> Insertion:
    """Drop lines from the end of a cut text until it leaves no bracket open and no header without a body.

    The first line with text stays: it is what the user would type next, whole or not.
    """
    if not insertion.is_cut:
        return insertion
    lines = insertion.text.split("\n")
    first = next((number for number, line in enumerate(lines, 1) if line.strip()), len(lines))
    while len(lines) > first and _is_half(lines):
        lines.pop()
    return insertion.with_text("\n".join(lines))


def _is_half(lines: list[str]) -> bool:
    last = lines[-1].strip()
    return not last or last.endswith(":") or last.startswith("@") or _leaves_open("\n".join(lines))


def _leaves_open(text: str) -> bool:
    opened: list[str] = []
    for character in text:
        if character in "([{":
            opened.append(character)
        elif character in OPENER_OF and opened and opened[-1] == OPENER_OF[character]:
            opened.pop()
    return bool(opened)

"""The filter that ends a suggestion where it begins to repeat itself, as small models do."""

from __future__ import annotations

import re

from lsp_server.filters.cursor_context import CursorContext, Insertion, word_characters

_MAX_LINES = 6  # of a repeated piece
_FEW_WORD_CHARACTERS = 3
# A piece three times; a short piece, which data may repeat, eight times.
_REPEATED = re.compile(r"(?=([^\n]{1,3}?)\1{7}|([^\n]{4,60}?)\2{2})")


def cut_repetition(insertion: Insertion, context: CursorContext) -> Insertion:
    """Cut at the first repetition: of lines with content, or of a piece of a line."""
    text = _cut_pieces(_cut_lines(insertion.text, context.before))
    return insertion.with_text(text)


def _cut_lines(text: str, head: str) -> str:
    """The text up to where one to six lines repeat the lines before them; the last line may be incomplete.

    The first line includes its `head` before the cursor, so that a repetition has the same indentation.
    """
    lines = (head + text).split("\n")
    for index in range(1, len(lines)):
        for count in range(1, min(index, _MAX_LINES) + 1):
            before, after = lines[index - count : index], lines[index : index + count]
            whole = before == after or (before[:-1] == after[:-1] and index + count == len(lines))
            said = word_characters("".join(after))
            if whole and said >= _FEW_WORD_CHARACTERS and before[-1].startswith(after[-1]):
                return "\n".join(lines[:index])[len(head) :]
    return text


def _cut_pieces(text: str) -> str:
    if not _says_something_twice(text):
        return text
    for match in _REPEATED.finditer(text):
        piece = match.group(1) or match.group(2)
        if word_characters(piece):
            return text[: match.start() + len(piece)]
    return text


def _says_something_twice(text: str) -> bool:
    """Whether seven characters occur in two places: true of every match of `_REPEATED`, and of little other text."""
    starts = range(len(text) - 6)
    return len({text[start : start + 7] for start in starts}) < len(starts)

"""The filter that ends a suggestion where it begins to say the same over and over, as small models do."""

from __future__ import annotations

import re

from lsp_server.filters.cursor_place import Insertion, Place, word_characters

_MAX_LINES = 6  # of a repeated piece
_FEW_WORD_CHARACTERS = 3
# The same three times, or of short pieces, which data may well repeat, more often.
_REPEATED = re.compile(r"(?=([^\n]{1,3}?)\1{7}|([^\n]{4,60}?)\2{2})")


def cut_repetition(insertion: Insertion, place: Place) -> Insertion:
    """Up to the first repetition: of lines that say something, or of a piece of a line."""
    text = _cut_pieces(_cut_lines(insertion.text, place.before))
    return insertion.with_text(text)


def _cut_lines(text: str, head: str) -> str:
    """Up to where one to six lines follow upon the same lines; the last one may be cut short.

    The first line counts with its `head` before the cursor: a line that repeats it is indented as it is.
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
    """Whether seven characters stand in two places, as some do in whatever `_REPEATED` finds; most text has none."""
    starts = range(len(text) - 6)
    return len({text[start : start + 7] for start in starts}) < len(starts)

"""What an edit really changes: it without the text that stays, and a large edit as small ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rapidfuzz.distance import LCSseq, Postfix, Prefix

from lsp_server.editing.documents import Edit, Position, Replacement, split_lines
from lsp_server.editing.spans import end_of

# The comparison of more lines, or of more characters in all changed lines, would take a keystroke's time.
_MOST_LINES = 4000
_MOST_CHARACTERS = 20_000
_MOST_TOGETHER = 2000  # characters that are compared as one
_UNITS = re.compile(r"\r\n|\w+|.", re.DOTALL)


def trimmed(replacement: Replacement) -> Replacement:
    """The replacement without the beginning and the end that it leaves as they were."""
    start, text, old = replacement.edit.start, replacement.edit.text, replacement.replaced
    if not old or not text:
        return replacement
    head = Prefix.similarity(old, text)
    head -= old[:head].endswith("\r")  # \r\n stays together
    tail = Postfix.similarity(old[head:], text[head:])
    tail -= old[len(old) - tail :].startswith("\n")
    inserted, replaced = text[head : len(text) - tail], old[head : len(old) - tail]
    first = end_of(start, old[:head])
    return Replacement(Edit(first, end_of(first, replaced), inserted), replaced)


def hunks(replacement: Replacement) -> list[Edit]:
    """Edits that together do the same, as `diff` finds them; the last place first, so that each has its old position.

    A replacement too large to compare stays one edit.
    """
    (edit, old) = trimmed(replacement)
    lines, new_lines = split_lines(old), split_lines(edit.text)
    if not old or not edit.text or max(len(lines), len(new_lines)) > _MOST_LINES:
        return [edit]
    found: list[Edit] = []
    left = _MOST_CHARACTERS
    for first, last, new_first, new_last in _changes(lines, new_lines):
        block, text = "".join(lines[first:last]), "".join(new_lines[new_first:new_last])
        start = Position(edit.start.line + first, 0 if first else edit.start.column)
        left -= len(block) + len(text)
        if left < 0 or max(len(block), len(text)) > _MOST_TOGETHER:
            found.append(Edit(start, end_of(start, block), text))
            continue
        words, new_words = _UNITS.findall(block), _UNITS.findall(text)
        for begin, end, new_begin, new_end in _changes(words, new_words):
            place = end_of(start, "".join(words[:begin]))
            found.append(Edit(place, end_of(place, "".join(words[begin:end])), "".join(new_words[new_begin:new_end])))
    return found[::-1]


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges that differ, each as its bounds in `old` and in `new`; neighbouring ones are one."""
    at = new_at = 0
    for alike in LCSseq.opcodes(old, new).as_matching_blocks():  # the last one is empty, at both ends
        if alike.a > at or alike.b > new_at:
            yield at, alike.a, new_at, alike.b
        at, new_at = alike.a + alike.size, alike.b + alike.size

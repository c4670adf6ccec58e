"""The filters that cut what is there already: on the cursor's line, below it, above it, or in the suggestion itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lsp_server.editing.indentation import leading_space
from lsp_server.filters.cursor_context import CursorContext, Insertion, word_characters

_MAX_LINES = 6  # of a repeated piece
# A piece three times; a short piece, which data may repeat, eight times.
_REPEATED = re.compile(r"(?=([^\n]{1,3}?)\1{7}|([^\n]{4,60}?)\2{2})")
_LEFT_TO_BALANCE = frozenset(")]}\"'` \t")
_SAYS_ENOUGH = 3  # word characters, of a text that one match suffices for


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
            if whole and said >= _SAYS_ENOUGH and before[-1].startswith(after[-1]):
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


def drop_rest_of_line(insertion: Insertion, context: CursorContext) -> Insertion:
    """Cut where the suggestion repeats the rest of the line, or ends with its beginning.

    Closing brackets and quotes alone are no overlap: the suggestion may have opened them itself.
    """
    text, after = insertion.text, context.after[insertion.replaced :].strip()
    if not after or _LEFT_TO_BALANCE.issuperset(after):
        return insertion
    if word_characters(after) >= _SAYS_ENOUGH and (said := text.find(after)) >= 0:
        return insertion.with_text(_before_space(text[:said], context))
    for length in range(min(len(text), len(after)), 0, -1):
        if text.endswith(after[:length]) and not _LEFT_TO_BALANCE.issuperset(after[:length]):
            return insertion.with_text(_before_space(text[:-length], context))
    return insertion


def _before_space(text: str, context: CursorContext) -> str:
    return text.rstrip() if context.after[0].isspace() else text


def cut_at_next_lines(insertion: Insertion, context: CursorContext) -> Insertion:
    """Cut at the first line that the document continues with anyway.

    A line with little content (`}`, `else:`) counts only if the suggestion matches the document from there to its
    end. The last line may be incomplete, if all of it was suggested.
    """
    below = context.filled_below
    lines = (context.before + insertion.text + context.after[insertion.replaced :]).split("\n")
    for index, line in enumerate(lines):
        may_be_short = index > 0 or not context.before.strip()
        if line.strip() and below and _goes_on_below(lines[index:], below, may_be_short=may_be_short):
            return insertion.with_text("\n".join(lines[:index])[len(context.before) :] if index else "")
    return insertion


def _goes_on_below(lines: list[str], below: Sequence[str], *, may_be_short: bool) -> bool:
    suggested = [line.rstrip() for line in lines if line.strip()]
    if not below[0].startswith(suggested[0]):
        return False
    says_enough = word_characters(suggested[0]) >= _SAYS_ENOUGH
    if suggested[0] == below[0]:
        return says_enough or (len(suggested) > 1 and suggested == list(below[: len(suggested)]))
    begins = leading_space(below[0]) == leading_space(suggested[0])
    return begins and says_enough and may_be_short and len(suggested) == 1


def drop_previous_lines(insertion: Insertion, context: CursorContext) -> Insertion:
    """Drop the suggestion if it would make the cursor's line, or a block, equal to the lines above.

    The last line may be incomplete, if all of it was suggested. A block that begins with several of the last lines
    above, such as the method above, is dropped together with its continuation.
    """
    text = context.before + insertion.text + context.after[insertion.replaced :]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    above = list(context.filled_above[-len(lines) :])
    if _begins_as_lines_above(lines, above):
        return insertion.with_text("")
    if not lines or len(lines) != len(above) or lines[:-1] != above[:-1]:
        return insertion
    all_suggested = len(lines) > 1 or not context.before.strip()
    cut_short = all_suggested and above[-1].startswith(lines[-1]) and word_characters(lines[-1]) >= _SAYS_ENOUGH
    if word_characters("".join(lines)) and (lines == above or cut_short):
        return insertion.with_text("")
    return insertion


def _begins_as_lines_above(lines: list[str], above: list[str]) -> bool:
    """Whether `lines` begins with all lines from its first line's last occurrence above on, at least two."""
    if len(lines) < 2 or lines[0] not in above:
        return False
    again = above[len(above) - 1 - above[::-1].index(lines[0]) :]
    return len(again) > 1 and lines[: len(again)] == again and word_characters("".join(again)) > 0

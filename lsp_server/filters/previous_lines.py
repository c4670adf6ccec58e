"""The filter that drops a suggestion which only repeats the lines above the cursor."""

from __future__ import annotations

from lsp_server.filters.cursor_context import CursorContext, Insertion, word_characters

_SAYS_ENOUGH = 3  # word characters, of an incomplete line


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

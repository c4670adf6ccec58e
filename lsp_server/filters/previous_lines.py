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
    told = [line.strip() for line in text.split("\n") if line.strip()]
    above = list(context.filled_above[-len(told) :])
    if _begins_as_lines_above(told, above):
        return insertion.with_text("")
    if not told or len(told) != len(above) or told[:-1] != above[:-1]:
        return insertion
    suggested = len(told) > 1 or not context.before.strip()
    cut_short = suggested and above[-1].startswith(told[-1]) and word_characters(told[-1]) >= _SAYS_ENOUGH
    if word_characters("".join(told)) and (told == above or cut_short):
        return insertion.with_text("")
    return insertion


def _begins_as_lines_above(told: list[str], above: list[str]) -> bool:
    """Whether `told` begins with all lines from its first line's last occurrence above on, at least two."""
    if len(told) < 2 or told[0] not in above:
        return False
    again = above[len(above) - 1 - above[::-1].index(told[0]) :]
    return len(again) > 1 and told[: len(again)] == again and word_characters("".join(again)) > 0

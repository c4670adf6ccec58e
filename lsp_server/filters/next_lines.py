"""The filter that ends a suggestion where it runs into the lines that follow in the document."""

from __future__ import annotations

from collections.abc import Sequence

from lsp_server.filters.cursor_context import CursorContext, Insertion, word_characters
from lsp_server.filters.indentation import leading_space

_SAYS_ENOUGH = 3  # word characters, of a line that one match suffices for


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

"""The filter that ends a suggestion where it repeats the text behind the cursor on its line."""

from __future__ import annotations

from lsp_server.filters.cursor_context import CursorContext, Insertion, word_characters

_LEFT_TO_BALANCE = frozenset(")]}\"'` \t")
_SAYS_ENOUGH = 3  # word characters


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

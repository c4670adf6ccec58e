"""The filters of white space: they drop trailing white space and write the document's own line ends."""

from __future__ import annotations

from lsp_server.filters.cursor_context import CursorContext, Insertion

_STUCK_TO = frozenset("_\"'`([{")  # a space may precede these


def drop_trailing_space(insertion: Insertion, context: CursorContext) -> Insertion:
    """Drop white space and blank lines at the end, but keep the space before a following word."""
    text = insertion.text.rstrip()
    behind = context.after[insertion.replaced :][:1]
    keeps_words_apart = behind.isalnum() or behind in _STUCK_TO
    if text and behind and keeps_words_apart and insertion.text[len(text) :].startswith(" "):
        text += " "
    return insertion.with_text(text)


def use_line_ends(insertion: Insertion, context: CursorContext) -> Insertion:
    """Replace \\n by the document's own line ends."""
    return insertion.with_text(insertion.text.replace("\n", context.line_end))

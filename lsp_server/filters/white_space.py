"""The filters of white space: none at the end, nothing where there is nothing else, the document's own line ends."""

from __future__ import annotations

from lsp_server.filters.cursor_place import Insertion, Place

_STUCK_TO = frozenset("_\"'`([{")  # what one writes a space before


def drop_trailing_space(insertion: Insertion, place: Place) -> Insertion:
    """No white space or blank lines at the end, but the space before a word that follows."""
    text = insertion.text.rstrip()
    behind = place.after[insertion.replaced :][:1]
    keeps_words_apart = behind.isalnum() or behind in _STUCK_TO
    if text and behind and keeps_words_apart and insertion.text[len(text) :].startswith(" "):
        text += " "
    return insertion.with_text(text)


def use_line_ends(insertion: Insertion, place: Place) -> Insertion:
    """The document's own line ends."""
    return insertion.with_text(insertion.text.replace("\n", place.line_end))

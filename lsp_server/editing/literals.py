"""Tells whether a place is in a comment or a string, and scans little of the document again after an edit."""

from __future__ import annotations

from bisect import bisect_right, insort

from lsp_server.editing.documents import Document, Position
from lsp_server.editing.languages import language
from protocol.settings import SuggestIn

# Put at the place: a comment or string that is open there contains it, and one that ends there does not.
_PROBE = "x"


class Literals:
    """The comments and strings of one document, by its language's tokens."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._outside = [0]  # lines that begin in neither, ascending: scans begin at the last one before the place

    def edited(self, line: int) -> None:
        """Forget what an edit of this line may have changed."""
        del self._outside[bisect_right(self._outside, line) :]

    def at(self, place: Position) -> SuggestIn | None:
        """What the place is in; None if it is in neither."""
        lines = self._document.lines
        begin = self._outside[bisect_right(self._outside, place.line) - 1]
        above = "".join(lines[begin : place.line])
        text = above + lines[place.line][: place.column] + _PROBE
        found: SuggestIn | None = None
        begins_outside = True
        for token in language(self._document.language_id).tokens.finditer(text):
            begins_outside &= not token.start() < len(above) < token.end()
            if token.end() == len(text) and token.start() < len(text) - len(_PROBE):
                found = "strings" if token.group()[0] in "\"'`" else "comments"
        if begins_outside and place.line > begin:
            insort(self._outside, place.line)  # a place above may have come later
        return found

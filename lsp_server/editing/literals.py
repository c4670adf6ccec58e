"""Tells whether a place is in a comment or a string, and lexes little of the document again after an edit."""

from __future__ import annotations

from bisect import bisect_right, insort

from lsp_server.editing.brackets import QUOTES
from lsp_server.editing.documents import Document, Position, line_length
from lsp_server.editing.lexing import MOST_CHARS, literal_at
from protocol.settings import SuggestIn

# Put at the place: a comment or string that is open there contains it, and one that ends there does not.
_PROBE = "x"
_COMMENT_ENDS = ("*/", "-->")


class Literals:
    """The comments and strings of one document, by its language's lexer."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._outside = [0]  # lines that begin in neither, ascending: scans begin at the last one before the place

    def edited(self, line: int) -> None:
        """Forget what an edit of this line may have changed."""
        del self._outside[bisect_right(self._outside, line) :]

    def at(self, place: Position) -> SuggestIn | None:
        """What the place is in; None if it is in neither."""
        lines = self._document.lines
        begin = max(self._outside[bisect_right(self._outside, place.line) - 1], self._nearest(place.line))
        above = "".join(lines[begin : place.line])
        line = lines[place.line][: line_length(lines[place.line])]
        before, behind = line[: place.column], line[place.column :]
        if place.line > begin and self._found(above, before + behind) is None:
            insort(self._outside, place.line)  # a place above may have come later
            above = ""
        return self._found(above + before, behind)

    def _found(self, before: str, behind: str) -> SuggestIn | None:
        """What the text behind `before` is in.

        A lexer may know a literal only by its end: the line's own, or one that is yet to be typed or stands below.
        """
        for end in (behind, *QUOTES, *_COMMENT_ENDS):
            found = literal_at(before + _PROBE + end, len(before), self._document.language_id)
            if found == "comments" or (found == "strings" and (end == behind or before.count(end) % 2)):
                return found
        return None

    def _nearest(self, line: int) -> int:
        """The first of the lines above that are worth lexing for a place in this one."""
        lines, chars = self._document.lines, 0
        while line > 0 and (chars := chars + len(lines[line - 1])) <= MOST_CHARS:
            line -= 1
        return line

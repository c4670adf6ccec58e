"""One shown suggestion, as far as it is in the document: what of it was typed, and what was accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lsp_server.editing.brackets import CLOSER_OF, QUOTES, is_auto_closed
from lsp_server.editing.documents import Document, Position, Replacement
from lsp_server.editing.hunks import trimmed
from lsp_server.editing.spans import Span, end_of, moved
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.usage.kept import Followed
from lsp_server.usage.statistics import Group


@dataclass(slots=True, eq=False)
class Shown:
    """A suggestion and its rests. Offsets count the characters of its `texts`, which begin alike.

    `counted` never goes back, so that what is deleted and typed again, or undone and redone, counts once.
    """

    opened: OpenDocument
    group: Group
    texts: tuple[str, ...]  # as it was first shown, with its alternatives
    mark: Position | None  # the place in the document of the offset `marked`; None once its edits are no longer known
    marked: int = 0
    said: str = ""  # how it begins in the document
    counted: int = 0  # the characters up to here are counted
    accepted: int = 0  # of those, accepted; the others were typed
    replaced: int = 0  # characters behind the cursor that its texts have too
    has_outcome: bool = False
    unplaced: tuple[int, str] | None = None  # accepted, not in the document yet: its offset, and the text up to its end
    followed: Followed | None = None  # what was accepted last

    @classmethod
    def first(cls, opened: OpenDocument, group: Group, cursor: Position, texts: tuple[str, ...], taken: int) -> Shown:
        """A suggestion that replaces the `taken` characters before the cursor."""
        start = Position(cursor.line, cursor.column - taken)
        said = opened.document.slice(start, cursor)
        if not texts[0].startswith(said):
            return cls(opened, group, texts, mark=None)
        return cls(opened, group, texts, start, said=said, counted=len(said))

    def resumed_by(self, cursor: Position, texts: Sequence[str]) -> int | None:
        """Take an answer that continues this suggestion: the offset that it begins at; None if it does not."""
        for text in self.texts:
            offset = len(text) - len(texts[0])
            is_next = offset == len(self.said) if self.mark else offset >= self.counted
            if is_next and text.endswith(texts[0]):
                self.said = text[:offset]
                self.texts = tuple(self.said + rest for rest in texts)
                self.mark, self.marked, self.counted = cursor, offset, max(self.counted, offset)
                return offset
        return None

    def advance(self, replacement: Replacement) -> bool:
        """Follow an edit; whether it inserted what is suggested."""
        if self.mark is None:
            return False
        (edit, replaced) = trimmed(replacement)
        place = end_of(self.mark, self.said[self.marked :])
        said = self.said + edit.text
        if edit.start == place and edit.text:
            if not (text := self._beginning_with(said)) or (replaced and said != text):
                self.mark = None
                return False
            self.said = said
            return True
        if edit.end == place and not edit.text and edit.start >= self.mark:
            self.said = self.said[: len(self.said) - len(replaced)]
        elif edit.end <= self.mark:
            self.mark = moved(self.mark, edit)
        elif edit.start < place:
            self.mark = None
        return False

    def looks_accepted(self, replacement: Replacement) -> bool:
        """Whether keys do not explain the insertion that just advanced it: a word, a line, or the rest at once."""
        inserted = trimmed(replacement).edit.text
        behind = self.text[len(self.said) :]
        if len(inserted) < 2 or not inserted.strip() or _closes_itself(inserted):
            return False
        ends_word = not (_is_word(self.said[-1:]) and _is_word(behind[:1]))
        return not behind or (ends_word and not replacement.replaced)

    def accept(self, offset: int, text: str, replaced: int = 0) -> int:
        """Count the text up to `offset` as accepted; returns how many of its characters are new."""
        new = max(offset - replaced - self.counted, 0)
        if offset > self.counted:
            self.unplaced = (self.unplaced[0] if self.unplaced else self.counted, text[:offset])
        self.counted = max(self.counted, offset)
        self.accepted += new
        return new

    def take_placed(self) -> tuple[str, Span] | None:
        """The accepted text that now stands in the document, with its place, once."""
        if self.unplaced is None or self.mark is None or not self.said.startswith(self.unplaced[1]):
            return None
        (offset, text), self.unplaced = self.unplaced, None
        offset = max(offset, self.marked)
        start = end_of(self.mark, text[self.marked : offset])
        return text[offset:], Span(start, end_of(start, text[offset:]))

    def is_in(self, document: Document, start: Position, offset: int, text: str) -> bool:
        """Whether the document has all of `text` behind `offset` at `start`; that place is then known again."""
        span = Span(start, end_of(start, text[offset:]))
        if span.end > document.end or document.slice(span.start, span.end) != text[offset:]:
            return False
        self.mark, self.marked, self.said = start, offset, text
        return True

    @property
    def text(self) -> str:
        """The first of its texts that begins as the document says."""
        return self._beginning_with(self.said)

    @property
    def was_typed(self) -> bool:
        """Whether more than half of it was typed by hand."""
        return (self.counted - self.accepted) * 2 > len(self.texts[0])

    def _beginning_with(self, said: str) -> str:
        return next((text for text in self.texts if text.startswith(said)), "")


def _closes_itself(text: str) -> bool:
    """Whether one key inserts this: a bracket or a quote with its closer."""
    return text[0] in {*CLOSER_OF, *QUOTES} and is_auto_closed(text[0], text[1:])


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"

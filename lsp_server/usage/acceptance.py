"""The acceptance of shown suggestions: what of each was typed and accepted, from reports and edits."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lsp_server.documents.documents import Document, Position, Replacement, Span, end_of, moved, trimmed
from lsp_server.documents.lexing import CLOSER_OF, QUOTES, is_auto_closed
from lsp_server.documents.positions import PositionCodec, PositionEncoding
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.open_documents import OpenDocument
from lsp_server.usage.kept import Followed, KeptText
from lsp_server.usage.statistics import Group, Recorder, Statistics, one_answer

_UTF16 = PositionCodec(PositionEncoding.UTF16)
# A key inserts a character, a pair of brackets, or a line end and indentation; one change may hold some keys.
_MOST_CHARACTERS = 8
_MOST_SPACE = 200
_WORD = re.compile(r"\w{1,80}(\(\)?)?")  # an entry of the completion popup
_REPLACED = re.compile(r"\s*\w*\s*")  # by more than one character
_DELETED_TEXTS = 64  # deleted texts, for undo and redo
_LONGEST_REMEMBERED = 10_000


class Keyboard:
    """The keyboard as far as changes of documents show it. It keeps a few deleted texts in memory only."""

    def __init__(self) -> None:
        self._deleted: deque[tuple[str, Position, str]] = deque(maxlen=_DELETED_TEXTS)

    def changed(self, uri: str, replacements: Sequence[Replacement]) -> Statistics:
        """The typed characters in this change of the document `uri`."""
        parts = [trimmed(replacement) for replacement in replacements]
        if len(parts) > 1 and not _is_a_row(parts):
            alike = len({(part.edit.text, part.replaced) for part in parts}) == 1
            parts = parts[:1] if alike else []  # several cursors, or a formatter, a refactoring
        typed = [self._typed(uri, part) for part in parts]
        return Statistics() if None in typed else Statistics(typed_characters=sum(filter(None, typed)))

    def _typed(self, uri: str, part: Replacement) -> int | None:
        """How many characters were typed; None if no key did this."""
        start, text, replaced = part.edit.start, part.edit.text, part.replaced
        if is_restored := (uri, start, text) in self._deleted:
            self._deleted.remove((uri, start, text))
        if replaced and len(replaced) <= _LONGEST_REMEMBERED:
            self._deleted.append((uri, start, replaced))
        if not text:
            return 0 if len(replaced) <= _MOST_CHARACTERS else None
        if is_restored:
            return 0 if len(text) == 1 else None  # one character may be typed again; it counts once
        word = text.strip()
        is_short = len(word) <= _MOST_CHARACTERS or _WORD.fullmatch(word)
        is_over_word = len(text) == 1 or _REPLACED.fullmatch(replaced)
        return len(text) if is_short and is_over_word and len(text) - len(word) <= _MOST_SPACE else None


def _is_a_row(parts: Sequence[Replacement]) -> bool:
    """Whether each part goes on where the one before it ended, as keys do."""
    ends = [end_of(part.edit.start, part.edit.text) for part in parts[:-1]]
    return all(end in (part.edit.start, part.edit.end) for end, part in zip(ends, parts[1:], strict=True))


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


_REMEMBERED = 32  # answers that may still be accepted, over all documents


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer as the client has it: the rest of a suggestion, from `offset` on."""

    shown: Shown
    start: Position
    offset: int
    texts: tuple[str, ...]  # of the whole suggestion
    replaced: tuple[int, ...]  # characters in the document that each text has too


class Acceptances:
    """Counts for all documents. Each suggestion gets one outcome, and each accepted or typed character counts once.

    Until the client reports a shown item, all answers count as shown, and text that is inserted at once as suggested
    counts as accepted. After that only its reports do.
    """

    def __init__(self, recorder: Recorder, kept: KeptText | None = None) -> None:
        self._recorder = recorder
        self.kept = kept or KeptText(recorder.count)
        self._keyboard = Keyboard()
        self._numbers = itertools.count(1)
        self._answers: dict[int, _Answer] = {}
        self._open: dict[str, Shown] = {}  # by document: the suggestion that is shown now
        self._client_tells = False
        self._unclear: tuple[Shown, list[Replacement]] | None = None  # typed, unless a report follows

    def answered(
        self, opened: OpenDocument, cursor: Position, insertions: tuple[Insertion, ...], milliseconds: float | None
    ) -> int:
        """Record a non-empty answer; returns its number, by which its items are accepted. None is no time to count."""
        self._settle_ambiguous_edit()
        group = self._recorder.bucket(opened.document.language_id)
        if milliseconds is not None:
            self._recorder.count(group, one_answer(milliseconds))
        texts = tuple(insertion.text for insertion in insertions)
        start = Position(cursor.line, cursor.column - insertions[0].taken)
        shown = self._open.get(opened.document.uri)
        offset = None
        if shown is not None and shown.opened is opened:
            offset = shown.resumed_by(start, texts)
        if shown is None or offset is None:
            self.ended(opened.document.uri)
            shown, offset = Shown.first(opened, group, cursor, texts, insertions[0].taken), 0
            if not self._client_tells:
                self._show(shown)
        shown.replaced = insertions[0].replaced
        replaced = tuple(insertion.replaced for insertion in insertions)
        number = next(self._numbers)
        self._answers[number] = _Answer(shown, start, offset, shown.texts, replaced)
        for oldest in list(self._answers)[:-_REMEMBERED]:
            del self._answers[oldest]
        return number

    def shown(self, number: int) -> None:
        """Record that the client shows an item of this answer."""
        self._client_tells = True
        if number in self._answers:
            self._show(self._answers[number].shown)

    def accepted(self, number: int, index: int) -> tuple[OpenDocument, Position] | None:
        """Record that an item was accepted whole; returns the cursor behind it, None if its text is not there yet."""
        answer = self._answers.pop(number, None)
        if answer is None or not 0 <= index < len(answer.texts):
            return None
        shown, text = answer.shown, answer.texts[index]
        document = shown.opened.document
        is_there = shown.is_in(document, answer.start, answer.offset, text)
        self._accept(shown, len(text), text, answer.replaced[index])
        return (shown.opened, end_of(answer.start, text[answer.offset :])) if is_there else None

    def accepted_partly(self, number: int, units: int) -> None:
        """Record that the first UTF-16 units of an item were accepted, or typed before; its rest is still shown."""
        if (answer := self._answers.get(number)) is not None:
            text = answer.texts[0]
            accepted = _UTF16.code_points(text[answer.offset :], max(units, 0))
            self._accept(answer.shown, answer.offset + accepted, text)

    def on_edit(self, opened: OpenDocument, replacements: Sequence[Replacement]) -> None:
        """Attribute an edit to typing or to an accepted suggestion."""
        self._settle_ambiguous_edit()
        self.kept.edited(opened, replacements)
        shown = self._open.get(opened.document.uri)
        by_keys = list(replacements)
        if shown is not None and shown.opened is opened:
            by_keys = [replacement for replacement in replacements if not self._is_accepted(shown, replacement)]
            self._follow(shown)
        if by_keys:
            self._count_typed(opened, by_keys)

    def ended(self, uri: str) -> None:
        """Record that this document's suggestion is no longer shown."""
        self._settle_ambiguous_edit()
        shown = self._open.pop(uri, None)
        if shown is not None:
            self._outcome(shown, Statistics(typed_through=1) if shown.was_typed else Statistics(dismissed=1))

    def closed(self, uri: str) -> None:
        self.ended(uri)
        self.kept.closed(uri)

    def close(self) -> None:
        for uri in [*self._open]:
            self.ended(uri)
        self.kept.close()

    def _show(self, shown: Shown) -> None:
        uri = shown.opened.document.uri
        if self._open.get(uri) is not shown:
            self.ended(uri)
            self._open[uri] = shown
            self._recorder.count(shown.group, Statistics(shown=1))

    def _accept(self, shown: Shown, offset: int, text: str, replaced: int = 0) -> None:
        """Count the suggestion up to `offset`, and follow what is new of it."""
        self._unclear = None
        if not shown.has_outcome:
            self._show(shown)
        is_whole = not shown.accepted and offset + shown.replaced >= len(text)
        new = shown.accept(offset, text, replaced)
        self._recorder.count(shown.group, Statistics(accepted_characters=new))
        self._outcome(shown, Statistics(accepted=1) if is_whole else Statistics(accepted_partly=1))
        self._follow(shown)

    def _outcome(self, shown: Shown, outcome: Statistics) -> None:
        if not shown.has_outcome:
            shown.has_outcome = True
            self._recorder.count(shown.group, outcome)

    def _follow(self, shown: Shown) -> None:
        """Follow the accepted text from when it is in the document."""
        if (placed := shown.take_placed()) is not None:
            text, span = placed
            if shown.followed is None or not self.kept.grow(shown.followed, text, span):
                shown.followed = self.kept.follow(shown.opened, shown.group, text, span)

    def _settle_ambiguous_edit(self) -> None:
        """Count an unclear insertion as typed, since no report followed it."""
        if self._unclear is not None:
            (shown, replacements), self._unclear = self._unclear, None
            shown.counted = max(shown.counted, len(shown.said))
            self._count_typed(shown.opened, replacements)

    def _count_typed(self, opened: OpenDocument, replacements: Sequence[Replacement]) -> None:
        typed = self._keyboard.changed(opened.document.uri, replacements)
        self._recorder.count(self._recorder.bucket(opened.document.language_id), typed)

    def _is_accepted(self, shown: Shown, replacement: Replacement) -> bool:
        """Follow an edit of the suggestion; whether what it inserted is counted, or may be by a coming report."""
        if not shown.advance(replacement):
            return False
        if len(shown.said) <= shown.counted:
            return True
        if self._client_tells:
            self._unclear = shown, [*(self._unclear[1] if self._unclear else ()), replacement]
        elif shown.looks_accepted(replacement):
            self._accept(shown, len(shown.said), shown.text, len(trimmed(replacement).replaced))
        else:
            shown.counted = len(shown.said)
            return False
        return True

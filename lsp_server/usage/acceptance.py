"""Counts the outcome of shown suggestions, from what clients report and from the edits of their documents."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from lsp_server.editing.documents import Position, Replacement
from lsp_server.editing.hunks import trimmed
from lsp_server.editing.spans import end_of
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.usage.kept import KeptText
from lsp_server.usage.keyboard import Keyboard
from lsp_server.usage.recorder import Recorder
from lsp_server.usage.shown import Shown
from lsp_server.usage.statistics import Statistics, one_answer

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
        self, opened: OpenDocument, cursor: Position, insertions: tuple[Insertion, ...], milliseconds: float
    ) -> int:
        """Record a non-empty answer; returns its number, by which its items are accepted."""
        self._clear_up()
        group = self._recorder.group(opened.document.language_id)
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

    def accepted_partly(self, number: int, characters: int) -> None:
        """Record that the first `characters` of an item were accepted, or typed before; its rest is still shown."""
        if (answer := self._answers.get(number)) is not None:
            text = answer.texts[0]
            self._accept(answer.shown, min(answer.offset + max(characters, 0), len(text)), text)

    def changed(self, opened: OpenDocument, replacements: Sequence[Replacement]) -> None:
        """Follow a change of a document: what of it was typed, and what accepted."""
        self._clear_up()
        self.kept.edited(opened, replacements)
        shown = self._open.get(opened.document.uri)
        by_keys = list(replacements)
        if shown is not None and shown.opened is opened:
            by_keys = [replacement for replacement in replacements if not self._is_accepted(shown, replacement)]
            self._follow(shown)
        if by_keys:
            self._type(opened, by_keys)

    def ended(self, uri: str) -> None:
        """Record that this document's suggestion is no longer shown."""
        self._clear_up()
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

    def _clear_up(self) -> None:
        """Take as typed what no report followed."""
        if self._unclear is not None:
            (shown, replacements), self._unclear = self._unclear, None
            shown.counted = max(shown.counted, len(shown.said))
            self._type(shown.opened, replacements)

    def _type(self, opened: OpenDocument, replacements: Sequence[Replacement]) -> None:
        typed = self._keyboard.changed(opened.document.uri, replacements)
        self._recorder.count(self._recorder.group(opened.document.language_id), typed)

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

"""Counts the outcome of shown suggestions: accepted, typed or rejected, and the share kept after a while."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from rapidfuzz.distance import LCSseq

from lsp_server.editing.documents import Position
from lsp_server.editing.spans import Span, end_of
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.usage.statistics import Statistics, one_answer

WATCH_SECONDS = 30.0
_COMPARED_CHARACTERS = 2000
_WORDS = re.compile(r"\w+|\s+|.")
_REMEMBERED = 32  # answers that may still be accepted, over all documents


@dataclass(frozen=True, slots=True)
class Shown:
    """One answer as the client has it. The rest of an earlier suggestion keeps that suggestion's `length`."""

    number: int
    opened: OpenDocument
    start: Position
    texts: tuple[str, ...]  # the best first
    length: int
    accepted_characters: int = 0

    def goes_on_as(self, opened: OpenDocument, texts: tuple[str, ...]) -> bool:
        """Whether these texts, for this document, are the rest of the suggestion."""
        return opened is self.opened and any(text.endswith(texts[0]) for text in self.texts)


class Acceptances:
    """Counts for all documents; calls `count` with each event's statistics."""

    def __init__(self, count: Callable[[Statistics], None], watch_s: float = WATCH_SECONDS) -> None:
        self._count = count
        self._watch_s = watch_s
        self._numbers = itertools.count(1)
        self._answers: dict[int, Shown] = {}
        self._open: dict[str, Shown] = {}  # by document: the suggestion that is shown now
        self._client_tells = False  # whether the client reports shown answers: until it does, all count as shown

    def answered(
        self, opened: OpenDocument, cursor: Position, insertions: tuple[Insertion, ...], milliseconds: float
    ) -> int:
        """Record a non-empty answer; returns its number, by which its items are accepted."""
        self._count(one_answer(milliseconds))
        texts = tuple(insertion.text for insertion in insertions)
        start = Position(cursor.line, cursor.column - insertions[0].taken)
        last = self._open.get(opened.document.uri)
        if last is not None and last.goes_on_as(opened, texts):
            shown = replace(last, number=next(self._numbers), start=start, texts=texts)
            self._open[opened.document.uri] = shown
        else:
            self.ended(opened.document.uri)
            shown = Shown(next(self._numbers), opened, start, texts, len(texts[0]))
        self._answers[shown.number] = shown
        for number in list(self._answers)[:-_REMEMBERED]:
            del self._answers[number]
        if not self._client_tells:
            self._show(shown)
        return shown.number

    def shown(self, number: int) -> None:
        """Record that the client shows an item of this answer; from now on only reported answers count as shown."""
        self._client_tells = True
        if number in self._answers:
            self._show(self._answers[number])

    def accepted(self, number: int, index: int) -> tuple[OpenDocument, Position] | None:
        """Record that an item was accepted whole; returns the cursor behind it, None if its text is not there yet."""
        shown = self._answers.pop(number, None)
        if shown is None or index >= len(shown.texts):
            return None
        text, document = shown.texts[index], shown.opened.document
        self._open.pop(document.uri, None)
        self._count(Statistics(accepted=1, accepted_characters=len(text)))
        span = Span(shown.start, end_of(shown.start, text))
        there = _text(shown.opened, span) == text
        key = shown.opened.watch(span if there else Span(shown.start, shown.start))
        asyncio.get_running_loop().call_later(self._watch_s, self._look_again, shown.opened, key, text)
        return (shown.opened, span.end) if there else None

    def accepted_partly(self, number: int, characters: int) -> None:
        """Record that the first `characters` of an item were accepted; its rest is still shown."""
        shown = self._answers.get(number)
        if shown is None:
            return
        if not shown.accepted_characters:
            self._count(Statistics(accepted_partly=1))
        self._count(Statistics(accepted_characters=characters))
        changed = replace(shown, accepted_characters=shown.accepted_characters + characters)
        self._answers[number] = self._open[shown.opened.document.uri] = changed

    def ended(self, uri: str) -> None:
        """Record that this document's suggestion is no longer shown, and was not accepted whole."""
        last = self._open.pop(uri, None)
        if last is None or last.accepted_characters:
            return
        typed = len(last.texts[0]) * 2 < last.length
        self._count(Statistics(typed=1) if typed else Statistics(rejected=1))

    def _show(self, shown: Shown) -> None:
        uri = shown.opened.document.uri
        if uri not in self._open:
            self._count(Statistics(shown=1))
        self._open[uri] = shown

    def _look_again(self, opened: OpenDocument, key: int, text: str) -> None:
        """Count the characters of an accepted text that are still there."""
        text = text[:_COMPARED_CHARACTERS]
        span = opened.watched.pop(key)
        there = _text(opened, span)[: 2 * _COMPARED_CHARACTERS]
        self._count(Statistics(watched_characters=len(text), kept_characters=_kept_characters(text, there)))


def _kept_characters(before: str, now: str) -> int:
    """How many characters of `before`, by whole words and separators, `now` still has in the same order."""
    words, words_now = _WORDS.findall(before), _WORDS.findall(now)
    same = (step for step in LCSseq.opcodes(words, words_now) if step.tag == "equal")
    return sum(len(word) for step in same for word in words[step.src_start : step.src_end])


def _text(opened: OpenDocument, span: Span) -> str:
    """The text of the span now; empty if the span lies outside of the document."""
    reaches = span.start <= span.end <= opened.document.end
    return opened.document.slice(span.start, span.end) if reaches else ""

"""The lines of a document that the user visited last, and the snippets that are cut around these visits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lsp_server.editing.documents import Document, LineChange
from protocol.messages import Snippet

SNIPPET_LINES = 40
_SNIPPET_CHARS = 4000  # the most code points of a snippet: with long lines it has fewer than SNIPPET_LINES
_MIN_LINES = 5  # a shorter piece between other snippets is not worth its separator
_MAX_VISITS = 4
_NEAR_LINES = SNIPPET_LINES // 2
# How far from its last known place a snippet is searched; text that moved further counts as gone.
_REACH_LINES = 2000


class Visit(NamedTuple):
    """A line, and the number of the event that touched it last: a higher one is more recent."""

    line: int
    touched: int


@dataclass(slots=True)
class DocumentVisits:
    """The last visits to one document, most recent first; they move with its text."""

    document: Document
    visits: tuple[Visit, ...] = ()

    def touch(self, line: int, sequence: int) -> None:
        """Record that the user was at `line`; a nearby place moves there instead of a new one."""
        line = min(line, len(self.document.lines) - 1)
        others = list(self.visits)
        near = next((visit for visit in others if abs(visit.line - line) <= _NEAR_LINES), None)
        if near is not None:
            others.remove(near)
        self.visits = (Visit(line, sequence), *others)[:_MAX_VISITS]

    def edited(self, change: LineChange, sequence: int) -> None:
        """Follow an edit, and count it as a visit unless it is too large for typing."""
        first, removed, added = change
        last = first + max(added - 1, 0)

        def moved(line: int) -> int:
            if line >= first + removed:
                return line + added - removed
            return min(line, last)

        self.visits = tuple(Visit(moved(line), touched) for line, touched in self.visits)
        if added <= SNIPPET_LINES:
            self.touch(last, sequence)


@dataclass(frozen=True, slots=True)
class CutSnippet:
    """A snippet as it was cut from the lines [first, first + len(lines)) of a document."""

    uri: str
    first: int
    lines: tuple[str, ...]
    snippet: Snippet

    @property
    def span(self) -> range:
        """Its lines in the document."""
        return range(self.first, self.first + len(self.lines))

    @property
    def chars(self) -> int:
        """Its size in code points, path included."""
        return len(self.snippet.path) + len(self.snippet.text)


def cut(document: Document, line: int, path: str, max_chars: int, taken: Sequence[range]) -> CutSnippet | None:
    """A snippet of whole lines around `line`, without lines that are `taken`; None if too little is left."""
    lines = document.lines
    room = min(_SNIPPET_CHARS, max_chars - len(path)) - len(lines[line])
    first, stop = line, line + 1
    if room < 0:
        return None
    upwards = downwards = True
    while (upwards or downwards) and stop - first < SNIPPET_LINES:
        upwards = upwards and _is_free(lines, first - 1, room, taken)
        if upwards:
            first -= 1
            room -= len(lines[first])
        downwards = downwards and stop - first < SNIPPET_LINES and _is_free(lines, stop, room, taken)
        if downwards:
            room -= len(lines[stop])
            stop += 1
    if taken and stop - first < _MIN_LINES:
        return None
    chosen = tuple(lines[first:stop])
    text = "".join(chosen).replace("\r\n", "\n")
    return CutSnippet(document.uri, first, chosen, Snippet(path, text)) if text.strip() else None


def _is_free(lines: Sequence[str], line: int, room: int, taken: Sequence[range]) -> bool:
    return 0 <= line < len(lines) and len(lines[line]) <= room and not any(line in span for span in taken)


def find_again(snippet: CutSnippet, document: Document) -> CutSnippet | None:
    """The snippet at the place nearest to its last one where the document still has its text, or None."""
    lines, wanted, last = document.lines, snippet.lines, snippet.first
    if tuple(lines[last : last + len(wanted)]) == wanted:
        return snippet
    # The longest line is the least frequent, so it leaves the fewest places to compare.
    key = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    found = _indices(lines, wanted[key], last + key - _REACH_LINES, last + key + _REACH_LINES)
    starts = (index - key for index in sorted(found, key=lambda index: abs(index - key - last)))
    first = next((each for each in starts if each >= 0 and tuple(lines[each : each + len(wanted)]) == wanted), None)
    return None if first is None else replace(snippet, first=first)


def _indices(lines: list[str], line: str, start: int, stop: int) -> Iterator[int]:
    """Where `line` stands among those from `start` to `stop`."""
    index = max(start, 0) - 1
    try:
        while True:
            index = lines.index(line, index + 1, max(stop, 0))
            yield index
    except ValueError:  # list.index found no further one
        return

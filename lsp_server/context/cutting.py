"""Snippets cut from documents: whole lines around a line, found again after edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lsp_server.editing.documents import Document
from protocol.messages import Snippet
from protocol.settings import ContextSource

FileStamp = tuple[int, int]  # of a file on disk: its time of change in nanoseconds, its size in bytes

SNIPPET_LINES = 40
_SNIPPET_CHARS = 4000  # the most code points of a snippet: with long lines it has fewer than SNIPPET_LINES
_MIN_LINES = 5  # a shorter piece between other snippets is not worth its separator
# How far from its last known place a snippet is searched; text that moved further counts as gone.
_REACH_LINES = 2000


@dataclass(frozen=True, slots=True)
class CutSnippet:
    """A snippet as it was cut from the lines [first, first + len(lines)) of a document, and the source it came from.

    `stamp` is the state of the file that a source read it from; None if it was cut from an open document.
    """

    uri: str
    first: int
    lines: tuple[str, ...]
    snippet: Snippet
    origin: ContextSource
    stamp: FileStamp | None = None
    is_verbatim: bool = True  # its text is the lines themselves

    @property
    def span(self) -> range:
        """Its lines in the document."""
        return range(self.first, self.first + len(self.lines))

    @property
    def chars(self) -> int:
        """Its size in code points, path included."""
        return len(self.snippet.path) + len(self.snippet.text)


def cut(document: Document, line: int, path: str, max_chars: int, taken: Sequence[range]) -> CutSnippet | None:
    """A snippet of whole lines around a visited `line`, without lines that are `taken`; None if too little is left."""
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
    return CutSnippet(document.uri, first, chosen, Snippet(path, text), "visits") if text.strip() else None


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

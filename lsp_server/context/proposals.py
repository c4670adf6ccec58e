"""Snippets and proposals: lines of other files, found again after edits, and the interface of their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from lsp_server.documents.documents import Document
from lsp_server.documents.positions import split_uri
from protocol.messages import Snippet
from protocol.settings import ContextSource

FileStamp = tuple[int, int]  # of a file on disk: its time of change in nanoseconds, its size in bytes

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


# Chosen with the tasks of `midfill eval --cross-file`. A proposal's rank is its source's weight times its score in
# (0, 1], and by FADING less for each better one of the source, so that several sources share the budget.
WEIGHTS: Mapping[ContextSource, float] = {
    "definitions": 0.9,
    "usages": 4.5,  # their scores are low, and they are short
    "edits": 0.8,
    "similar": 1.0,
    "staged": 5.0,  # before all others
}
FADING: Mapping[ContextSource, float] = {"definitions": 0.92, "usages": 0.96, "edits": 0.85, "similar": 0.8, "staged": 0.98}

INDEXED: frozenset[ContextSource] = frozenset(("definitions", "usages"))
"""The sources that read the index of a workspace folder."""

# The order of new snippets in a prompt, the text that changes least first.
STABLE_FIRST: Sequence[ContextSource] = ("definitions", "usages", "similar", "edits", "staged")


def rank(origin: ContextSource, score: float, number: int) -> float:
    """The rank of a source's proposal with `number` better ones."""
    return WEIGHTS[origin] * score * FADING[origin] ** number


@dataclass(frozen=True, slots=True)
class TextProposal:
    """Text of another file that may become a snippet: from the lines [first, first + len(lines)) of a file or a document.

    `shown` is what the prompt gets, if it is not the lines themselves. `stamp` is the state of the file that it was
    read from; None for text of an open document.
    """

    uri: str
    origin: ContextSource
    rank: float
    first: int
    lines: tuple[str, ...]
    shown: str = ""
    stamp: FileStamp | None = None

    def is_in(self, snippet: CutSnippet) -> bool:
        """Whether the snippet already shows this text."""
        if snippet.uri != self.uri:
            return False
        inside = bool(self.lines) and snippet.first <= self.first and self.first + len(self.lines) <= snippet.span.stop
        return snippet.snippet.text == self.text or (inside and snippet.is_verbatim)

    @property
    def text(self) -> str:
        """The lines as the prompt gets them."""
        return self.shown or "".join(self.lines).replace("\r\n", "\n")

    def cut(self, path: str, max_chars: int, taken: Sequence[range]) -> CutSnippet | None:
        """The snippet, with at most `max_chars` code points of path and text, if none of its lines are `taken`."""
        span = range(self.first, self.first + len(self.lines))
        if not self.shown and any(span.start < other.stop and other.start < span.stop for other in taken):
            return None
        if len(path) + len(self.text) > max_chars or not self.text.strip():
            return None
        return CutSnippet(self.uri, self.first, self.lines, Snippet(path, self.text), self.origin, self.stamp, not self.shown)


@dataclass(frozen=True, slots=True)
class EditedText:
    """A change of an open document: its lines from `first` on were `old` and are `new`."""

    uri: str
    first: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    above: str  # the line above `first`; empty if there is none


@dataclass(frozen=True, slots=True)
class FileText:
    """Another file at one moment, for a source that works in a thread: open, or on disk as it was at `stamp`."""

    uri: str
    lines: tuple[str, ...]
    first: int = 0  # the file's line that `lines` begin with
    stamp: FileStamp | None = None


@dataclass(frozen=True, slots=True)
class PromptPlace:
    """The place where a prompt will be laid, with all that a source may read; a snapshot that threads can share.

    `head` are the first lines of the document, with its imports; `before` and `after` the lines around the cursor.
    """

    uri: str
    language_id: str
    head: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    open_texts: tuple[FileText, ...] = ()
    neighbours: tuple[FileText, ...] = ()
    edited: tuple[EditedText, ...] = ()

    def uri_of(self, path: Path) -> str:
        """The file's URI: the editor's if the file is open, which may encode other characters than `Path.as_uri`."""
        opened = (each.uri for each in self.open_texts if split_uri(each.uri).path == path.as_posix())
        return next(opened, None) or path.as_uri()


class Source(Protocol):
    """A source that works in a thread, one place at a time."""

    def propose(self, place: PromptPlace) -> Sequence[TextProposal]:
        """Its proposals for the place, best first; it never raises for hostile text."""

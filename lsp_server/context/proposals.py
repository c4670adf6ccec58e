"""The interface of the sources of snippets: the place that a prompt is for, and what a source proposes for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lsp_server.context.cutting import CutSnippet, FileStamp, cut
from lsp_server.editing.documents import Document
from lsp_server.editing.file_uris import split_uri
from protocol.messages import Snippet
from protocol.settings import ContextSource

# Chosen with the tasks of `midfill eval --cross-file`. A proposal's rank is its source's weight times its score in
# (0, 1], and by FADING less for each better one of the source, so that several sources share the budget.
WEIGHTS: Mapping[ContextSource, float] = {
    "definitions": 0.9,
    "usages": 4.5,  # their scores are low, and they are short
    "edits": 0.8,
    "similar": 1.0,
    "visits": 0.5,
}
FADING: Mapping[ContextSource, float] = {
    "definitions": 0.92,
    "usages": 0.96,
    "edits": 0.85,
    "similar": 0.8,
    "visits": 0.9,
}

INDEXED: frozenset[ContextSource] = frozenset(("definitions", "usages"))
"""The sources that read the index of a workspace folder."""

# The order of new snippets in a prompt, the text that changes least first.
STABLE_FIRST: Sequence[ContextSource] = ("definitions", "usages", "visits", "similar", "edits")


def rank(origin: ContextSource, score: float, number: int) -> float:
    """The rank of a source's proposal with `number` better ones."""
    return WEIGHTS[origin] * score * FADING[origin] ** number


@dataclass(frozen=True, slots=True)
class LineProposal:
    """The lines around one line of an open document that the user visited; they are cut when they are chosen."""

    document: Document
    line: int
    rank: float
    origin: ContextSource = "visits"

    @property
    def uri(self) -> str:
        return self.document.uri

    def is_in(self, snippet: CutSnippet) -> bool:
        """Whether the snippet already shows this text."""
        return snippet.uri == self.uri and self.line in snippet.span

    def cut(self, path: str, max_chars: int, taken: Sequence[range]) -> CutSnippet | None:
        """The snippet, with at most `max_chars` code points of path and text, without lines that are `taken`."""
        return cut(self.document, self.line, path, max_chars, taken)


@dataclass(frozen=True, slots=True)
class TextProposal:
    """Text that a source has cut itself: from the lines [first, first + len(lines)) of a file or a document.

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
        if snippet.uri != self.uri:
            return False
        inside = snippet.first <= self.first and self.first + len(self.lines) <= snippet.span.stop
        return snippet.snippet.text == self.text or (inside and snippet.is_verbatim)

    @property
    def text(self) -> str:
        """What the prompt gets."""
        return self.shown or "".join(self.lines).replace("\r\n", "\n")

    def cut(self, path: str, max_chars: int, taken: Sequence[range]) -> CutSnippet | None:
        span = range(self.first, self.first + len(self.lines))
        if not self.shown and any(span.start < other.stop and other.start < span.stop for other in taken):
            return None
        if len(path) + len(self.text) > max_chars or not self.text.strip():
            return None
        return CutSnippet(
            self.uri, self.first, self.lines, Snippet(path, self.text), self.origin, self.stamp, not self.shown
        )


Proposal = LineProposal | TextProposal
"""Text of another file that may become a snippet; the one with the highest rank is chosen first."""


@dataclass(frozen=True, slots=True)
class EditedText:
    """What the user changed in an open document: its lines from `first` on were `old` and are `new`."""

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
class Place:
    """Where a prompt will be laid, with all that a source may read; a snapshot that threads can share.

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

    def propose(self, place: Place) -> Sequence[TextProposal]:
        """What it proposes for the place, best first; it never raises for hostile text."""

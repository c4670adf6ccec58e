"""The sources `similar` and `edits`: chunks and diffs of the documents in the editor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice

from rapidfuzz.distance import Postfix, Prefix

from lsp_server.context.proposals import EditedText, FileStamp, PromptPlace, TextProposal, rank
from lsp_server.context.symbols import identifier_set, identifiers
from lsp_server.documents.documents import Document

CHUNK_LINES = 16
_STEP = 8  # chunks overlap by half
_LINES_BEFORE, _LINES_AFTER = 24, 8  # around the cursor, that chunks are compared with
_MAX_FILE_LINES = 2_000
_MAX_CHUNKS = 8
# Less than this share of identifiers in common is chance: every two files have some.
_LEAST_OVERLAP = 0.08
_MAX_REMEMBERED = 128

_Scored = tuple[float, str, int, tuple[str, ...], FileStamp | None]  # overlap, URI, first line, lines, stamp
_Chunks = tuple[tuple[int, frozenset[str]], ...]  # each chunk's first line and identifiers


class SimilarChunks:
    """Compares chunks of CHUNK_LINES lines by the Jaccard index of their identifiers; remembers unchanged files'."""

    def __init__(self) -> None:
        self._remembered: dict[str, tuple[tuple[str, ...], _Chunks]] = {}

    def propose(self, place: PromptPlace) -> Sequence[TextProposal]:
        """The most similar chunks that do not overlap, best first."""
        wanted = identifier_set((*place.before[-_LINES_BEFORE:], *place.after[:_LINES_AFTER]))
        if not wanted:
            return ()
        scored = (
            (overlap, file.uri, file.first + first, file.lines[first : first + CHUNK_LINES], file.stamp)
            for file in (*place.open_texts, *place.neighbours)
            for first, names in self._chunks(file.uri, file.lines[:_MAX_FILE_LINES])
            if (overlap := _jaccard(wanted, names)) >= _LEAST_OVERLAP
        )
        best = nlargest(3 * _MAX_CHUNKS, scored, key=lambda chunk: chunk[0])
        chosen: list[_Scored] = []
        for chunk in best:
            if not any(chunk[1] == other[1] and abs(chunk[2] - other[2]) < CHUNK_LINES for other in chosen):
                chosen.append(chunk)
        return [
            TextProposal(uri, "similar", rank("similar", _score(overlap), number), first, lines, stamp=stamp)
            for number, (overlap, uri, first, lines, stamp) in enumerate(chosen[:_MAX_CHUNKS])
        ]

    def _chunks(self, uri: str, lines: tuple[str, ...]) -> _Chunks:
        known = self._remembered.pop(uri, None)
        if known is None or known[0] != lines:
            known = lines, tuple(_cut(lines))
        self._remembered[uri] = known
        while len(self._remembered) > _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        return known[1]


def _cut(lines: Sequence[str]) -> Iterator[tuple[int, frozenset[str]]]:
    names = [frozenset(identifiers(line)) for line in lines]
    for first in range(0, max(1, len(lines) - _STEP), _STEP):
        yield first, frozenset().union(*names[first : first + CHUNK_LINES])


def _jaccard(some: frozenset[str], others: frozenset[str]) -> float:
    common = len(some & others)
    return common / (len(some) + len(others) - common) if common else 0.0


def _score(overlap: float) -> float:
    """From 0.5 at the least overlap; half of all identifiers in common is as good as it gets."""
    return 0.5 + 0.5 * min(1.0, overlap / 0.5)


_KEEP_S = 900.0  # after so long an edit is not recent
_MOST_LINES = 400  # between the first change of a document and the last: more is no edit by hand
_MOST_HUNK_LINES = 16
_MOST_HUNKS = 3  # of a document
_MAX_EDITS = 6
_MAX_DOCUMENTS = 64


@dataclass(slots=True)
class _Baseline:
    document: Document
    lines: list[str]
    taken: float


class Baselines:
    """The lines of each document as they were some minutes ago, to compare with; a copy of a list per document."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._baselines: dict[str, _Baseline] = {}

    def viewed(self, document: Document) -> None:
        """Compare with the document's present lines from now on, if there are none yet, or old ones."""
        known = self._baselines.get(document.uri)
        if known is None or known.document is not document or self._now() - known.taken > _KEEP_S:
            self._baselines.pop(document.uri, None)
            self._baselines[document.uri] = _Baseline(document, list(document.lines), self._now())
        while len(self._baselines) > _MAX_DOCUMENTS:
            del self._baselines[next(iter(self._baselines))]

    def closed(self, uri: str) -> None:
        self._baselines.pop(uri, None)

    def edited(self, document: Document) -> EditedText | None:
        """The change since; None if nothing has, or more than a user types."""
        known = self._baselines.get(document.uri)
        if known is None or known.document is not document:
            return None
        old, new = known.lines, document.lines
        first = Prefix.similarity(old, new)
        behind = Postfix.similarity(old[first:], new[first:])
        changed = old[first : len(old) - behind], new[first : len(new) - behind]
        if not any(changed) or max(map(len, changed)) > _MOST_LINES:
            return None
        above = new[first - 1] if first > 0 else ""
        return EditedText(document.uri, first, tuple(changed[0]), tuple(changed[1]), above)


class RecentEdits:
    """Cuts the differences of edited documents into diffs, the most recently used documents' first."""

    def propose(self, place: PromptPlace) -> Sequence[TextProposal]:
        """At most three diffs of a document, of at most 16 lines each."""
        hunks = (hunk for edited in place.edited for hunk in islice(_hunks(edited), _MOST_HUNKS))
        return [
            TextProposal(edited.uri, "edits", rank("edits", 1.0, number), first, held, shown)
            for number, (edited, first, held, shown) in enumerate(islice(hunks, _MAX_EDITS))
        ]


def _hunks(edited: EditedText) -> Iterator[tuple[EditedText, int, tuple[str, ...], str]]:
    """Each change with the line above it: where it stands, the lines by which it is found again, and its diff."""
    matcher = SequenceMatcher(None, edited.old, edited.new, autojunk=False)
    for kind, old_first, old_stop, new_first, new_stop in matcher.get_opcodes():
        old, new = edited.old[old_first:old_stop], edited.new[new_first:new_stop]
        if kind == "equal" or len(old) + len(new) > _MOST_HUNK_LINES or not "".join((*old, *new)).strip():
            continue
        above = edited.new[new_first - 1] if new_first > 0 else edited.above
        held = (above, *new) if above else new
        marked = (*((" ", above),) * bool(above), *(("-", line) for line in old), *(("+", line) for line in new))
        shown = "".join(mark + line.rstrip("\r\n") + "\n" for mark, line in marked)
        yield edited, edited.first + new_first - bool(above), held, shown

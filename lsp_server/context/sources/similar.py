"""The source `similar`: the chunks of other files that share most identifiers with the lines at the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest

from lsp_server.context.cutting import FileStamp
from lsp_server.context.identifiers import identifier_set, identifiers
from lsp_server.context.proposals import Place, TextProposal, rank

CHUNK_LINES = 16
_STEP = 8  # chunks overlap by half
_LINES_BEFORE, _LINES_AFTER = 24, 8  # around the cursor, that chunks are compared with
_MAX_FILE_LINES = 2_000
_MAX_PROPOSALS = 8
# Less than this share of identifiers in common is chance: every two files have some.
_LEAST_OVERLAP = 0.08
_MAX_REMEMBERED = 128

_Scored = tuple[float, str, int, tuple[str, ...], FileStamp | None]  # overlap, URI, first line, lines, stamp
_Chunks = tuple[tuple[int, frozenset[str]], ...]  # each chunk's first line and identifiers


class SimilarChunks:
    """Compares chunks of CHUNK_LINES lines by the Jaccard index of their identifiers; remembers unchanged files'."""

    def __init__(self) -> None:
        self._remembered: dict[str, tuple[tuple[str, ...], _Chunks]] = {}

    def propose(self, place: Place) -> Sequence[TextProposal]:
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
        best = nlargest(3 * _MAX_PROPOSALS, scored, key=lambda chunk: chunk[0])
        chosen: list[_Scored] = []
        for chunk in best:
            if not any(chunk[1] == other[1] and abs(chunk[2] - other[2]) < CHUNK_LINES for other in chosen):
                chosen.append(chunk)
        return [
            TextProposal(uri, "similar", rank("similar", _score(overlap), number), first, lines, stamp=stamp)
            for number, (overlap, uri, first, lines, stamp) in enumerate(chosen[:_MAX_PROPOSALS])
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

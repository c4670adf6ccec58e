"""The places that the user visited last in each open document, which move with its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lsp_server.context.cutting import SNIPPET_LINES
from lsp_server.context.proposals import LineProposal, rank
from lsp_server.editing.documents import Document, LineChange
from lsp_server.editing.languages import related

_MAX_VISITS = 4
_NEAR_LINES = SNIPPET_LINES // 2


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
        self.follow(change)
        if change.added <= SNIPPET_LINES:
            self.touch(_last(change), sequence)

    def follow(self, change: LineChange) -> None:
        """Move the visits with their text."""
        first, removed, added = change

        def moved(line: int) -> int:
            if line >= first + removed:
                return line + added - removed
            return min(line, _last(change))

        self.visits = tuple(Visit(moved(line), touched) for line, touched in self.visits)


def _last(change: LineChange) -> int:
    """The last line that a change has added, or the one in the place of those that it has removed."""
    return change.first + max(change.added - 1, 0)


def propose(all_visits: Iterable[DocumentVisits], uri: str, language_id: str) -> Sequence[LineProposal]:
    """The visits to all documents but `uri`, related languages first, then by recency."""
    others = [(each.document, visit) for each in all_visits if each.document.uri != uri for visit in each.visits]
    others.sort(key=lambda other: (not related(other[0].language_id, language_id), -other[1].touched))
    return [
        LineProposal(document, visit.line, rank("visits", 1.0, number))
        for number, (document, visit) in enumerate(others)
    ]

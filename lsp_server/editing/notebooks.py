"""The cells of a notebook in one language, joined into one document for prompts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from operator import eq

from lsp_server.editing.documents import Document, LineChange, Position


class Cells:
    """Keeps `document`, the cells' texts one below the other, in step with the cells.

    Each cell's text ends in a line end there, so that its lines are whole.
    """

    def __init__(self, uri: str, language_id: str) -> None:
        self.document = Document(uri, language_id, version=0)
        self._cells: Sequence[Document] = ()

    def arrange(self, cells: Sequence[Document]) -> LineChange:
        """Use these cells from now on; returns what changes in `document`."""
        before, self._cells = self.document.lines, cells
        self.refresh()
        after = self.document.lines
        above = _common(before, after)
        below = _common(before[above:][::-1], after[above:][::-1])
        return LineChange(above, len(before) - above - below, len(after) - above - below)

    def refresh(self) -> None:
        """Update `document` to the cells' current texts."""
        lines: list[str] = []
        for cell in self._cells:
            lines += cell.lines
            lines[-1] += "\n"
        self.document.lines = [*lines, ""]

    def position(self, cell: Document, position: Position) -> Position:
        """Where a position in the cell lies in `document`."""
        return Position(self._first_line(cell) + position.line, position.column)

    def change(self, cell: Document, change: LineChange) -> LineChange:
        """A change of the cell, in `document`'s lines."""
        return change._replace(first=self._first_line(cell) + change.first)

    def _first_line(self, cell: Document) -> int:
        line = 0
        for each in self._cells:
            if each is cell:
                break
            line += len(each.lines)
        return line


def _common(lines: Sequence[str], others: Sequence[str]) -> int:
    """How many first lines are the same."""
    return sum(1 for _ in takewhile(bool, map(eq, lines, others)))

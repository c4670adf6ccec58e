"""The values that the filters work on: the cursor's surroundings, and the insertion at the cursor."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from lsp_server.editing.documents import Document, Position, line_length
from lsp_server.editing.indentation import indent_unit
from lsp_server.filters.balance import Balance
from lsp_server.filters.statement import Statement

LONGEST_LINE = 10_000  # code points; the server suggests nothing in a longer line, and reads none
_WINDOW_LINES = 100  # above the cursor's line, and as many below
_WINDOW_CHARS = 20_000  # code points of these lines, above and below each
_WORD_CHARACTER = re.compile(r"\w")


@dataclass(frozen=True)
class CursorContext:
    """The lines nearest to the cursor, as the filters see them.

    Derived values are computed once: by the first filter that reads them, or earlier, by `work_out`.
    """

    before: str = ""  # of the cursor's line
    after: str = ""  # of the cursor's line
    lines_above: tuple[str, ...] = ()  # with their ends, as those below
    lines_below: tuple[str, ...] = ()
    from_start: bool = True  # whether `lines_above` begin where the document does
    to_end: bool = True  # whether `lines_below` end where it does
    language_id: str = ""
    line_end: str = "\n"  # of the document
    multi_line: bool = True  # whether blocks are wanted
    earlier: Balance | None = field(default=None, compare=False)  # of the statement some edits ago, or of any other

    @cached_property
    def filled_above(self) -> tuple[str, ...]:
        """The lines above that are not blank, stripped of white space on both sides."""
        return tuple(filter(None, map(str.strip, self.lines_above)))

    @cached_property
    def filled_below(self) -> tuple[str, ...]:
        """The lines below that are not blank, without trailing white space."""
        return tuple(filter(None, map(str.rstrip, self.lines_below)))

    @cached_property
    def indent_unit(self) -> str:
        return indent_unit((*self.lines_above, *self.lines_below))

    @cached_property
    def statement(self) -> Statement:
        return Statement.around(self)

    def work_out(self, *, indents: bool) -> None:
        """Compute the derived values now, while the core is at work, so that the filters find them.

        `indents` says whether a suggestion here may indent a line.
        """
        _ = self.statement.balance, self.filled_above, self.filled_below
        if indents:
            _ = self.indent_unit


@dataclass(frozen=True, slots=True)
class Insertion:
    """The text to put at the cursor, its lines ending in \\n until the last filter; an empty text suggests nothing.

    It replaces `replaced` code points behind the cursor and `taken` code points before it.
    """

    text: str
    replaced: int = 0
    taken: int = 0  # by the entry that is selected in the popup; the filters leave it alone

    def with_text(self, text: str) -> Insertion:
        return self if text == self.text else Insertion(text, self.replaced, self.taken)


def context_at(
    document: Document, cursor: Position, *, multi_line: bool = True, earlier: Balance | None = None
) -> CursorContext:
    """The place of a cursor in a line of the document that is no longer than LONGEST_LINE.

    It holds at most _WINDOW_LINES lines and _WINDOW_CHARS code points above, and as many below.
    """
    lines = document.lines
    line = lines[cursor.line]
    end = line_length(line)
    above = _nearest(lines[max(0, cursor.line - _WINDOW_LINES) : cursor.line][::-1])[::-1]
    below = _nearest(lines[cursor.line + 1 : cursor.line + 1 + _WINDOW_LINES])
    return CursorContext(
        before=line[: cursor.column],
        after=line[cursor.column : end],
        lines_above=above,
        lines_below=below,
        from_start=len(above) == cursor.line,
        to_end=cursor.line + 1 + len(below) == len(lines),
        language_id=document.language_id,
        line_end=line[end:] or lines[0][line_length(lines[0]) :] or "\n",
        multi_line=multi_line,
        earlier=earlier,
    )


def _nearest(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines, up to _WINDOW_CHARS code points."""
    ends = list(accumulate(map(len, lines)))
    return tuple(lines[: bisect_right(ends, _WINDOW_CHARS)])


def word_characters(text: str) -> int:
    """How many letters, digits and underscores `text` has: a measure of its content."""
    return len(_WORD_CHARACTER.findall(text))

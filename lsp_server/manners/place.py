"""The values that the filters work on: where the cursor is, and what is to be put there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lsp_server.documents import Document, Position, line_length
from lsp_server.manners.indentation import indent_unit
from lsp_server.manners.statement import Statement

_WINDOW_LINES = 100  # above the cursor's line, and as many below
_WORD_CHARACTER = re.compile(r"\w")


@dataclass(frozen=True)
class Place:
    """What the filters know of the cursor's surroundings: whole lines without their ends, the nearest ones.

    What follows from them is worked out once, by the first filter that asks for it.
    """

    before: str = ""  # of the cursor's line
    after: str = ""  # of the cursor's line
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    from_start: bool = True  # whether `above` begins where the document does
    to_end: bool = True  # whether `below` ends where it does
    language_id: str = ""
    line_end: str = "\n"  # of the document
    multi_line: bool = True  # whether blocks are wanted

    @cached_property
    def indent_unit(self) -> str:
        """What the document indents by, one step deeper."""
        return indent_unit((*self.above, *self.below))

    @cached_property
    def statement(self) -> Statement:
        """The statement around the cursor."""
        return Statement.around(self)


@dataclass(frozen=True, slots=True)
class Insertion:
    """What to put at the cursor: a text whose lines end in \\n until the last filter. An empty text is nothing.

    It takes the place of the `replaced` code points behind the cursor, and of the `taken` ones before it.
    """

    text: str
    replaced: int = 0
    taken: int = 0  # by the entry that is selected in the popup; the filters leave it alone


def place_at(document: Document, cursor: Position, *, multi_line: bool = True) -> Place:
    """The place of a cursor that lies in the document."""
    lines = document.lines
    line = lines[cursor.line]
    end = line_length(line)
    above = _without_ends(lines[max(0, cursor.line - _WINDOW_LINES) : cursor.line])
    below = _without_ends(lines[cursor.line + 1 : cursor.line + 1 + _WINDOW_LINES])
    return Place(
        before=line[: cursor.column],
        after=line[cursor.column : end],
        above=above,
        below=below,
        from_start=len(above) == cursor.line,
        to_end=cursor.line + 1 + len(below) == len(lines),
        language_id=document.language_id,
        line_end=line[end:] or lines[0][line_length(lines[0]) :] or "\n",
        multi_line=multi_line,
    )


def word_characters(text: str) -> int:
    """How many letters, digits and underscores `text` has: how much it says."""
    return len(_WORD_CHARACTER.findall(text))


def _without_ends(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(line.rstrip("\r\n") for line in lines)

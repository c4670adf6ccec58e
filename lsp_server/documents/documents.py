"""The mirror of a document: its lines, version and edits in code points, spans that follow edits, notebooks' cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import eq
from typing import NamedTuple

from rapidfuzz.distance import LCSseq, Postfix, Prefix

from lsp_server.documents.languages import language
from lsp_server.documents.lexing import BRACKETS
from lsp_server.documents.tally import Counts, Tally
from protocol.errors import BadInput

# LSP's line ends, and only these: a form feed or U+2028 is text.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)")


class Position(NamedTuple):
    """A place in a document: line and column from 0, the column in code points of the line without its end."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of [start, end) by `text`."""

    start: Position
    end: Position
    text: str


class Replacement(NamedTuple):
    """An edit, and the text that it replaced."""

    edit: Edit
    replaced: str


class LineChange(NamedTuple):
    """A change of lines: `removed` lines from `first` on became `added` lines."""

    first: int
    removed: int
    added: int


def split_lines(text: str) -> list[str]:
    """The lines of `text` with their ends; the last one has none and may be empty."""
    if "\r" not in text:
        parts = text.split("\n")
        return [part + "\n" for part in parts[:-1]] + parts[-1:]
    lines = _LINE.findall(text)
    lines.append(text[sum(map(len, lines)) :])
    return lines


def line_length(line: str) -> int:
    """Code points of the line without its end."""
    if line.endswith("\r\n"):
        return len(line) - 2
    return len(line) - line.endswith(("\n", "\r"))


@dataclass(slots=True)
class Document:
    """A versioned text, kept as lines so that an edit costs the lines that it touches."""

    uri: str
    language_id: str
    version: int
    lines: list[str] = field(default_factory=lambda: [""])
    _tally: Tally = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.renew(self.lines)

    @classmethod
    def from_text(cls, uri: str, language_id: str, version: int, text: str) -> Document:
        return cls(uri, language_id, version, split_lines(text))

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def end(self) -> Position:
        return Position(len(self.lines) - 1, len(self.lines[-1]))

    def renew(self, lines: list[str]) -> None:
        """Have these lines from now on."""
        self.lines = lines
        known = language(self.language_id)
        self._tally = Tally((*BRACKETS, *known.quotes), known.block_lines)

    def counts(self, line: int) -> Counts:
        """How often brackets, and the quotes and block lines of its language, stand above this line, and in the document."""
        return self._tally.counts(self.lines, line)

    def slice(self, start: Position, end: Position) -> str:
        """The text of [start, end)."""
        if start.line == end.line:
            return self.lines[start.line][start.column : end.column]
        middle = self.lines[start.line + 1 : end.line]
        return "".join([self.lines[start.line][start.column :], *middle, self.lines[end.line][: end.column]])

    def nearest(self, position: Position) -> Position:
        """The position itself, or the nearest one in the document."""
        line = min(position.line, len(self.lines) - 1)
        return Position(line, min(position.column, line_length(self.lines[line])))

    def check(self, position: Position) -> None:
        """Raise BadInput, naming the position, if it lies outside of the document."""
        line, column = position
        if not 0 <= line < len(self.lines):
            raise BadInput(f"line {line} is not in {self.uri}, which has lines 0 to {len(self.lines) - 1}")
        if not 0 <= column <= line_length(self.lines[line]):
            raise BadInput(
                f"column {column} is not in line {line} of {self.uri}, which has columns 0 to {line_length(self.lines[line])}"
            )

    def apply(self, edit: Edit) -> LineChange:
        """Change the lines; the caller sets the version. A bad range raises BadInput and changes nothing."""
        self.check(edit.start)
        self.check(edit.end)
        if edit.end < edit.start:
            raise BadInput(f"the edit of {self.uri} ends at {tuple(edit.end)} before its start {tuple(edit.start)}")
        first, last = edit.start.line, edit.end.line
        text = self.lines[first][: edit.start.column] + edit.text + self.lines[last][edit.end.column :]
        behind_return = first > 0 and self.lines[first - 1].endswith("\r")
        if first == last and not behind_return and "\n" not in edit.text and "\r" not in edit.text:
            self._tally.edit(self.lines, first, first + 1)
            self.lines[first] = text  # the common case: an edit within one line
            return LineChange(first, 1, 1)
        if behind_return:
            # The following text may begin with \n, and complete a \r\n.
            first -= 1
            text = self.lines[first] + text
        new = split_lines(text)
        if last < len(self.lines) - 1:
            new.pop()  # the text ends in a line end, so the next line takes the place of the empty last one
        self._tally.edit(self.lines, first, last + 1)
        self.lines[first : last + 1] = new
        return LineChange(first, last + 1 - first, len(new))


@dataclass(frozen=True, slots=True)
class Span:
    """The text of [start, end)."""

    start: Position
    end: Position


def end_of(start: Position, text: str) -> Position:
    """The end of `text` if it begins at `start`."""
    return moved(start, Edit(start, start, text)) if text else start


def follow_span(span: Span, edit: Edit) -> Span:
    """The span after an edit; text inserted right at its end belongs to it only while it is empty."""
    empty = span.start == span.end
    return Span(_start(span.start, edit, stays=empty), _end(span.end, edit, grows=empty))


def follow_cursor(cursor: Position, edit: Edit) -> Position:
    """The cursor after an edit: behind text inserted at it; in a replaced text, at most at the new text's end.

    The position may lie outside of the document where the edit joined or split a line end.
    """
    if edit.end <= cursor:
        return moved(cursor, edit)
    return min(cursor, end_of(edit.start, edit.text))


def _start(start: Position, edit: Edit, *, stays: bool) -> Position:
    if edit.start > start or (stays and edit.start == start):
        return start
    if edit.end <= start:
        return moved(start, edit)
    return moved(edit.end, edit)


def _end(end: Position, edit: Edit, *, grows: bool) -> Position:
    if edit.end < end or (grows and edit.end == end):
        return moved(end, edit)
    return min(end, edit.start)


def moved(position: Position, edit: Edit) -> Position:
    """The position after the edit; it must not lie before the edit's end."""
    inserted = split_lines(edit.text)
    last_line = edit.start.line + len(inserted) - 1
    last_column = len(inserted[-1]) + (edit.start.column if len(inserted) == 1 else 0)
    column = position.column
    if position.line == edit.end.line:
        column += last_column - edit.end.column
    return Position(last_line + position.line - edit.end.line, column)


# The comparison of more lines, or of more characters in all changed lines, would take a keystroke's time.
_MOST_LINES = 4000
_MOST_CHARACTERS = 20_000
_MOST_TOGETHER = 2000  # characters that are compared as one
_UNITS = re.compile(r"\r\n|\w+|.", re.DOTALL)


def trimmed(replacement: Replacement) -> Replacement:
    """The replacement without the beginning and the end that it leaves as they were."""
    start, text, old = replacement.edit.start, replacement.edit.text, replacement.replaced
    if not old or not text:
        return replacement
    head = Prefix.similarity(old, text)
    head -= old[:head].endswith("\r")  # \r\n stays together
    tail = Postfix.similarity(old[head:], text[head:])
    tail -= old[len(old) - tail :].startswith("\n")
    inserted, replaced = text[head : len(text) - tail], old[head : len(old) - tail]
    first = end_of(start, old[:head])
    return Replacement(Edit(first, end_of(first, replaced), inserted), replaced)


def hunks(replacement: Replacement) -> list[Edit]:
    """Edits that together do the same, as `diff` finds them; the last place first, so that each has its old position.

    A replacement too large to compare stays one edit.
    """
    (edit, old) = trimmed(replacement)
    lines, new_lines = split_lines(old), split_lines(edit.text)
    if not old or not edit.text or max(len(lines), len(new_lines)) > _MOST_LINES:
        return [edit]
    found: list[Edit] = []
    left = _MOST_CHARACTERS
    for first, last, new_first, new_last in changed_ranges(lines, new_lines):
        block, text = "".join(lines[first:last]), "".join(new_lines[new_first:new_last])
        start = Position(edit.start.line + first, 0 if first else edit.start.column)
        left -= len(block) + len(text)
        if left < 0 or max(len(block), len(text)) > _MOST_TOGETHER:
            found.append(Edit(start, end_of(start, block), text))
            continue
        words, new_words = _UNITS.findall(block), _UNITS.findall(text)
        for begin, end, new_begin, new_end in changed_ranges(words, new_words):
            place = end_of(start, "".join(words[:begin]))
            found.append(Edit(place, end_of(place, "".join(words[begin:end])), "".join(new_words[new_begin:new_end])))
    return found[::-1]


def changed_ranges(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges that differ, each as its bounds in `old` and in `new`; neighbouring ones are one range."""
    at = new_at = 0
    for alike in LCSseq.opcodes(old, new).as_matching_blocks():  # the last one is empty, at both ends
        if alike.a > at or alike.b > new_at:
            yield at, alike.a, new_at, alike.b
        at, new_at = alike.a + alike.size, alike.b + alike.size


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
        self.document.renew([*lines, ""])

    def position(self, cell: Document, position: Position) -> Position:
        """The position in `document` of one in the cell."""
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

"""The mirror of an open document: its lines, its version, and edits in code points."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

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
    """What an edit did to the lines: `removed` lines from `first` on became `added` lines."""

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

    @classmethod
    def from_text(cls, uri: str, language_id: str, version: int, text: str) -> Document:
        return cls(uri, language_id, version, split_lines(text))

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def end(self) -> Position:
        return Position(len(self.lines) - 1, len(self.lines[-1]))

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
                f"column {column} is not in line {line} of {self.uri}, "
                f"which has columns 0 to {line_length(self.lines[line])}"
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
            self.lines[first] = text  # the common case: an edit within one line
            return LineChange(first, 1, 1)
        if behind_return:
            # The following text may begin with \n, and complete a \r\n.
            first -= 1
            text = self.lines[first] + text
        new = split_lines(text)
        if last < len(self.lines) - 1:
            new.pop()  # the text ends in a line end, so the next line takes the place of the empty last one
        self.lines[first : last + 1] = new
        return LineChange(first, last + 1 - first, len(new))

"""A text editor without a screen: what keys do to a document, with auto-indentation and auto-closed brackets."""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.documents import Document, Edit, Position
from protocol.errors import BadInput

_CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_INDENT = 4


@dataclass(frozen=True, slots=True)
class KeyPress:
    """What a key did: edits to tell the language server of (none for a move), and the inserted text."""

    label: str
    edit: Edit | None
    inserted: str = ""


class Editor:
    """One document with a cursor. Each key returns what it did, applied already."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.cursor = Position(0, 0)

    def type_character(self, character: str) -> KeyPress:
        """Insert it; an opening bracket brings its closer, and a closer that stands there already is typed over."""
        if character == "\n":
            return self._enter()
        line, column = self.cursor
        after = self.document.lines[line][column : column + 1]
        if character in _CLOSER_OF.values() and after == character:
            self.cursor = Position(line, column + 1)
            return KeyPress(f"{character} typed over", None)
        if (closer := _CLOSER_OF.get(character)) and (not after or after in "\r\n)]}"):
            return self._insert(character + closer, f"{character} auto-closed", back=1)
        return self._insert(character, character if character.strip() else "space")

    def backspace(self) -> KeyPress:
        """Delete the character before the cursor, or one level of indentation; an empty pair goes together."""
        line, column = self.cursor
        if not column:
            raise BadInput(f"there is nothing to delete at the beginning of line {line}")
        text = self.document.lines[line]
        before = text[:column]
        count = (column - 1) % _INDENT + 1 if not before.strip() else 1
        pair = _CLOSER_OF.get(before[-1]) == text[column : column + 1]
        start, end = Position(line, column - count), Position(line, column + pair)
        return self._apply(Edit(start, end, ""), start, "backspace")

    def accept(self, text: str, end: Position) -> KeyPress:
        """Take a suggestion, which replaces everything from the cursor to `end`."""
        edit = Edit(self.cursor, end, text)
        lines = text.split("\n")
        column = len(lines[-1]) + (self.cursor.column if len(lines) == 1 else 0)
        return self._apply(edit, Position(self.cursor.line + len(lines) - 1, column), "Tab accepts")

    def move(self, cursor: Position) -> KeyPress:
        """Place the cursor elsewhere, as a click does."""
        self.document.check(cursor)
        self.cursor = cursor
        return KeyPress(f"jump to line {cursor.line + 1}", None)

    def find(self, text: str) -> Position:
        """The place right behind the first occurrence of `text` in a line; BadInput if there is none."""
        for number, line in enumerate(self.document.lines):
            if (column := line.find(text)) >= 0:
                return Position(number, column + len(text))
        raise BadInput(f"{text!r} is not in {self.document.uri}")

    def _enter(self) -> KeyPress:
        line, column = self.cursor
        before = self.document.lines[line][:column]
        indent = len(before) - len(before.lstrip(" "))
        if before.rstrip().endswith((":", "(", "[", "{")):
            indent += _INDENT
        return self._insert("\n" + " " * indent, "Enter")

    def _insert(self, text: str, label: str, back: int = 0) -> KeyPress:
        line, column = self.cursor
        *above, last = text.split("\n")
        end = Position(line + len(above), len(last) + (0 if above else column) - back)
        return self._apply(Edit(self.cursor, self.cursor, text), end, label)

    def _apply(self, edit: Edit, cursor: Position, label: str) -> KeyPress:
        self.document.apply(edit)
        self.cursor = cursor
        return KeyPress(label, edit, edit.text)

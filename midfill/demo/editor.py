"""A text editor without a screen: applies keys to a document, with auto-indentation and auto-closed brackets."""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.editing.documents import Document, Edit, Position
from lsp_server.editing.spans import end_of
from protocol.errors import BadInput

_CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_INDENT = 4


@dataclass(frozen=True, slots=True)
class KeyPress:
    """The effect of a key: the edit to send to the language server, if any."""

    label: str
    edit: Edit | None
    jumped: bool = False
    accepted: bool = False
    undone: bool = False


class Editor:
    """One document with a cursor. Each key is applied at once and returns its effect."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.cursor = Position(0, 0)
        self._inverse: Edit | None = None  # of the last edit
        self._cursor_before = self.cursor

    def type_character(self, character: str) -> KeyPress:
        """Insert it; an opening bracket also inserts its closer, and a closer already there is typed over."""
        if character == "\n":
            return self._enter()
        if character == "\t":
            return self._insert(" " * _INDENT, "Tab")
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
            raise BadInput(f"nothing to delete before the beginning of line {line}")
        text = self.document.lines[line]
        before = text[:column]
        count = (column - 1) % _INDENT + 1 if not before.strip() else 1
        pair = _CLOSER_OF.get(before[-1]) == text[column : column + 1]
        start, end = Position(line, column - count), Position(line, column + pair)
        return self._apply(Edit(start, end, ""), start, "backspace")

    def accept(self, text: str, end: Position) -> KeyPress:
        """Insert a suggestion in place of the text from the cursor to `end`."""
        edit = Edit(self.cursor, end, text)
        self._apply(edit, end_of(edit.start, edit.text), "accept")
        return KeyPress("accept", edit, accepted=True)

    def undo(self) -> KeyPress:
        """Undo the last edit; BadInput if there was none."""
        if self._inverse is None:
            raise BadInput(f"nothing to undo in {self.document.uri}")
        inverse = self._inverse
        self._apply(inverse, self._cursor_before, "undo")
        return KeyPress("undo", inverse, undone=True)

    def move(self, cursor: Position) -> KeyPress:
        """Place the cursor elsewhere, as a click does."""
        self.document.check(cursor)
        self.cursor = cursor
        return KeyPress(f"jump to {cursor.line + 1}", None, jumped=True)

    def place_behind(self, text: str) -> Position:
        """The place right behind the last occurrence of `text`; BadInput if there is none."""
        head, found, _ = self.document.text.rpartition(text)
        if not found:
            raise BadInput(f"{text!r} is not in {self.document.uri}")
        lines = (head + found).split("\n")
        return Position(len(lines) - 1, len(lines[-1]))

    def _enter(self) -> KeyPress:
        """Break the line, keep its indentation, and strip a blank line's white space; a pair's closer goes below."""
        line, column = self.cursor
        before, after = self.document.lines[line][:column], self.document.lines[line][column:]
        outer = indent = len(before) - len(before.lstrip(" "))
        if before.rstrip().endswith((":", "(", "[", "{")):
            indent += _INDENT
        closes = bool(before) and bool(after) and _CLOSER_OF.get(before[-1]) == after[0]
        start = self.cursor if before.strip() else Position(line, 0)
        text = "\n" + " " * indent + ("\n" + " " * outer if closes else "")
        return self._apply(Edit(start, self.cursor, text), Position(line + 1, indent), "Enter")

    def _insert(self, text: str, label: str, back: int = 0) -> KeyPress:
        """Insert a piece of a line, and place the cursor `back` characters before its end."""
        line, column = self.cursor
        return self._apply(Edit(self.cursor, self.cursor, text), Position(line, column + len(text) - back), label)

    def _apply(self, edit: Edit, cursor: Position, label: str) -> KeyPress:
        self._inverse = Edit(edit.start, end_of(edit.start, edit.text), self.document.slice(edit.start, edit.end))
        self._cursor_before = self.cursor
        self.document.apply(edit)
        self.cursor = cursor
        return KeyPress(label, edit)

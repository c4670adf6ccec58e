"""Editing sessions that nobody recorded: what a person at work in some files presses, and where the cursor is."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lsp_server.documents.documents import Document, Edit, Position, end_of, line_length

CLOSER = {"(": ")", "[": "]", "{": "}", '"': '"'}
Edits = tuple[Edit, ...]
_SWITCHES = 0.05  # before so many of the things that people do
WORD = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class Key:
    """One press of a key: the cursor is at `cursor_before`, the edits are applied one after another, it is at `cursor`.

    It may have gone to `cursor_before` without a key, which an editor tells; an undo takes it along without a word.
    """

    uri: str
    kind: str
    cursor_before: Position
    edits: tuple[Edit, ...]
    cursor: Position


class Person:
    """Presses keys in one document; remembers what undo takes back."""

    def __init__(self, document: Document, choose: random.Random) -> None:
        self.document = document
        self.cursor = Position(len(document.lines) // 2, 0)
        self._choose = choose
        self._undo: list[Edits] = []
        self._redo: list[Edits] = []
        self._line_end = "\r\n" if document.lines[0].endswith("\r\n") else "\n"
        self._sentences = [line.strip() for line in document.lines if 8 < len(line.strip()) < 100]

    # -- what people do ------------------------------------------------------------------------------------------------

    def write(self) -> Iterator[Key]:
        """A line or two like those of the document, with slips of the finger."""
        for _ in range(self._choose.randint(1, 2)):
            for letter in self._choose.choice(self._sentences):
                yield self._insert("write", letter)
                if self._choose.random() < 0.04:
                    yield self._insert("write", "q")
                    yield self._backspace()
            yield self._insert("write", self._line_end + self._indentation())

    def correct(self) -> Iterator[Key]:
        """A few backspaces, and other letters."""
        for _ in range(self._choose.randint(1, 6)):
            if self.cursor != Position(0, 0):
                yield self._backspace()
        for letter in self._choose.choice(self._sentences)[:3]:
            yield self._insert("correct", letter)

    def complete_word(self) -> Iterator[Key]:
        """The popup puts a whole word in the place of its beginning."""
        word = self._choose.choice(WORD.findall(" ".join(self._sentences)))
        for letter in " " + word[:3]:
            yield self._insert("complete a word", letter)
        start = Position(self.cursor.line, self.cursor.column - 3)
        yield self._press("complete a word", Edit(start, self.cursor, word))

    def open_brackets(self) -> Iterator[Key]:
        """The editor closes what is opened, and steps over what it closed."""
        opened = self._choose.sample(sorted(CLOSER), 2)
        for bracket in opened:
            yield self._insert("bracket", bracket, behind=CLOSER[bracket])
            for letter in "arg":
                yield self._insert("bracket", letter)
        for bracket in reversed(opened):
            self.cursor = Position(self.cursor.line, self.cursor.column + 1)
            yield self._insert("bracket", "," if bracket == '"' else " ")
            yield self._backspace()

    def delete_forward(self) -> Iterator[Key]:
        """The Delete key takes what is behind the cursor."""
        for _ in range(self._choose.randint(1, 3)):
            line, column = self.cursor
            if column < line_length(self.document.lines[line]):
                yield self._press("delete forward", Edit(self.cursor, Position(line, column + 1), ""))

    def delete_lines(self) -> Iterator[Key]:
        """A selection of some lines above the cursor goes."""
        first = max(0, self.cursor.line - self._choose.randint(1, 12))
        if first < self.cursor.line and len(self.document.lines) > 60:
            self.cursor = Position(self.cursor.line, 0)
            yield self._press("delete lines", Edit(Position(first, 0), Position(self.cursor.line, 0), ""))

    def paste(self) -> Iterator[Key]:
        """Many lines at once."""
        text = "".join(self._indentation() + self._choose.choice(self._sentences) + self._line_end for _ in range(40))
        yield self._insert("paste", text)

    def jump(self) -> Iterator[Key]:
        """Somewhere else, mostly the end of a line; nothing is pressed."""
        line = self._choose.randrange(len(self.document.lines))
        end = line_length(self.document.lines[line])
        self.cursor = Position(line, end if self._choose.random() < 0.7 else self._choose.randint(0, end))
        yield from ()

    def look_up(self) -> Iterator[Key]:
        """A line or two up, or down, and a letter there."""
        line = min(max(0, self.cursor.line + self._choose.choice((-2, -1, 1, 2))), len(self.document.lines) - 1)
        self.cursor = Position(line, line_length(self.document.lines[line]))
        yield self._insert("look up", "x")

    def undo(self) -> Iterator[Key]:
        """A storm of undo, and perhaps back again."""
        count = self._choose.randint(1, 20)
        for _ in range(min(count, len(self._undo))):
            yield self._take_back("undo", self._undo, self._redo)
        for _ in range(min(count if self._choose.random() < 0.5 else 0, len(self._redo))):
            yield self._take_back("redo", self._redo, self._undo)

    def rename(self) -> Iterator[Key]:
        """A letter at the end of a word, in all its places nearby at once."""
        lines = range(max(0, self.cursor.line - 15), min(len(self.document.lines), self.cursor.line + 15))
        words = [(line, match) for line in lines for match in WORD.finditer(self.document.lines[line])]
        if not words:
            return
        wanted = self._choose.choice(words)[1].group()
        places = [Position(line, match.end()) for line, match in words if match.group() == wanted]
        edits = tuple(Edit(place, place, "s") for place in reversed(places))
        self.cursor = places[0]
        yield self._press("several places", *edits)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _indentation(self) -> str:
        line = self.document.lines[self.cursor.line]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _insert(self, kind: str, text: str, behind: str = "") -> Key:
        return self._press(kind, Edit(self.cursor, self.cursor, text + behind), behind=len(behind))

    def _backspace(self) -> Key:
        line, column = self.cursor
        start = Position(line, column - 1)
        if column == 0:
            start = Position(line - 1, line_length(self.document.lines[line - 1]))
        return self._press("backspace", Edit(start, self.cursor, ""))

    def _press(self, kind: str, *edits: Edit, behind: int = 0) -> Key:
        """Edit; the cursor is then behind what the last of the edits inserted, less `behind` letters."""
        self._redo.clear()
        key, back = self._apply(kind, edits, behind)
        self._undo.append(back)
        return key

    def _take_back(self, kind: str, stack: list[Edits], other: list[Edits]) -> Key:
        key, back = self._apply(kind, stack.pop(), 0)
        other.append(back)
        return key

    def _apply(self, kind: str, edits: Edits, behind: int) -> tuple[Key, Edits]:
        """The key, and the edits that take it back."""
        before, back = self.cursor, []
        for edit in edits:
            removed = self.document.slice(edit.start, edit.end)
            back.append(Edit(edit.start, end_of(edit.start, edit.text), removed))
            self.document.apply(edit)
        end = end_of(edits[-1].start, edits[-1].text)
        self.cursor = Position(end.line, end.column - behind)
        return Key(self.document.uri, kind, before, tuple(edits), self.cursor), tuple(reversed(back))


Weights = Mapping[Callable[[Person], Iterator[Key]], float]


def session(documents: Sequence[Document], habits: Weights, keys: int, seed: int, switch: float = 0.05) -> Iterator[Key]:
    """About so many keys, by somebody with these habits, who changes the document with probability `switch`."""
    choose = random.Random(seed)
    people = [Person(document, choose) for document in documents]
    person, pressed = people[0], 0
    while pressed < keys:
        if choose.random() < _SWITCHES:
            person = choose.choice(people)
        (habit,) = choose.choices(list(habits), list(habits.values()))
        for key in habit(person):
            pressed += 1
            yield key

"""The source `usages`: lines of other files that use what the document imports, or members named near the cursor."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, takewhile
from operator import eq
from pathlib import Path

from lsp_server.context.identifiers import identifier_set, uses
from lsp_server.context.index.database import files_using
from lsp_server.context.neighbours import NeighbourTexts
from lsp_server.context.proposals import FileText, Place, TextProposal, rank
from lsp_server.context.symbols import Symbols, proximity, symbols_of

_LINES_BEFORE, _LINES_AFTER = 24, 8  # around the cursor, that uses are compared with
_MAX_NAMES = 64
_MAX_FILES = 16  # read for one place
_MAX_USES = 32  # compared for one name
_MOST_USES_OF_NAME = 4  # proposed
_MAX_REMEMBERED = 64
_MAX_LINES = 4  # of a call that goes over several
_LONGEST_LINE = 160
_MAX_PROPOSALS = 24
# The scores by what is known of a name: it is imported and used near the cursor, only imported, or a member near it.
_USED_IMPORT, _IMPORT, _MEMBER = 1.0, 0.75, 0.5
_REPEATED = 0.7  # the factor of each further use of the same name
# What a use's likeness to the place is made of, 1 together: being a use, the identifiers of the lines around it, the
# word in front of the cursor in its line, and a line that begins as the cursor's does.
_A_USE, _SAME_IDENTIFIERS, _SAME_WORD, _SAME_BEGINNING = 0.16, 0.4, 0.22, 0.22
_ENOUGH_IN_COMMON = 1 / 3  # of all identifiers: as good as it gets
_LEAST_WORD, _LEAST_BEGINNING = 3, 4  # code points, a shorter one stands everywhere
_WORD_AT_CURSOR = re.compile(r"[\w.\"'\[\](]*$")  # with the names in front of a dot
_LinesByName = Mapping[str, Sequence[int]]
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


@dataclass(frozen=True, slots=True)
class _Here:
    """What uses are compared with: the identifiers around the cursor, and the text before it in its line."""

    identifiers: frozenset[str]
    word: str
    beginning: str

    @classmethod
    def of(cls, place: Place) -> _Here:
        identifiers = identifier_set((*place.before[-_LINES_BEFORE:], *place.after[:_LINES_AFTER]))
        line = place.before[-1][-_LONGEST_LINE:] if place.before else ""
        found = _WORD_AT_CURSOR.search(line)
        return cls(identifiers, found[0] if found else "", line.strip())

    def likeness(self, file: FileText, line: int) -> float:
        """From `_A_USE` to 1, how like the place a line of another file is."""
        near = identifier_set(file.lines[max(0, line - 2) : line + 2])
        common = len(near & self.identifiers)
        shared = common / (len(near) + len(self.identifiers) - common) if common else 0.0
        text = file.lines[line].strip()
        return (
            _A_USE
            + _SAME_IDENTIFIERS * min(1.0, shared / _ENOUGH_IN_COMMON)
            + _SAME_WORD * (len(self.word) >= _LEAST_WORD and self.word in text)
            + _SAME_BEGINNING * (len(self.beginning) >= _LEAST_BEGINNING and text.startswith(self.beginning))
        )


@dataclass(frozen=True, slots=True)
class _Use:
    file: FileText
    line: int  # of `file.lines`
    score: float

    @property
    def lines(self) -> tuple[str, ...]:
        """The line, and those below it to the end of its brackets; without these if the end is far.

        Empty if the line is then a call without its arguments, which shows nothing.
        """
        depth = 0
        for number, line in enumerate(self.file.lines[self.line : self.line + _MAX_LINES]):
            if len(line) > _LONGEST_LINE and number:
                break
            depth += sum(_BRACKETS.get(character, 0) for character in line)
            if depth <= 0:
                return self.file.lines[self.line : self.line + number + 1]
        line = self.file.lines[self.line]
        return () if line.rstrip().endswith(("(", "[")) else (line,)


class Usages:
    """Finds the files that use a name in the indexes of the workspace folders, and in them the lines like the place.

    `indexes` gives the index file of each folder. What unchanged files use is remembered.
    """

    def __init__(self, indexes: Mapping[Path, Path]) -> None:
        self._indexes = indexes
        self._texts = NeighbourTexts()
        self._remembered: dict[str, tuple[tuple[str, ...], _LinesByName]] = {}

    def propose(self, place: Place) -> Sequence[TextProposal]:
        """Uses in other files of the document's folder, those that look most like the lines at the cursor first."""
        symbols = symbols_of(place, self._indexes)
        names = {} if symbols is None else _wanted(symbols)
        if symbols is None or not names:
            return ()
        here = _Here.of(place)
        found: dict[str, list[_Use]] = {}
        for file in self._files(symbols, names, place):
            lines_by_name = self._lines_by_name(file)
            likeness = cache(partial(here.likeness, file))  # a line may use several of the names
            for name in names:
                several = found.setdefault(name, [])
                for line in lines_by_name.get(name, ())[: _MAX_USES - len(several)]:
                    several.append(_Use(file, line, names[name] * likeness(line)))
        best = sorted(_ranked(found), key=lambda each: -each.score)
        return [_proposal(use, number) for number, use in enumerate(islice(_different(best), _MAX_PROPOSALS))]

    def _files(self, symbols: Symbols, names: Mapping[str, float], place: Place) -> Iterator[FileText]:
        """The files that use the names, those first that use many of them and are near; open ones as they are now."""
        worth: dict[str, float] = {}
        for name, path in files_using(symbols.index, names):
            worth[path] = worth.get(path, 0.0) + names[name]
        ranked = sorted(worth, key=lambda path: -worth[path] - _nearness(path, symbols.path))
        paths = islice(filter(symbols.is_other_file, ranked), _MAX_FILES)
        opened = {each.uri: each for each in place.open_texts}
        for uri in (place.uri_of(symbols.folder / path) for path in paths):
            if uri in opened:
                yield opened[uri]
            else:
                yield from self._texts.read((uri,))

    def _lines_by_name(self, file: FileText) -> _LinesByName:
        known = self._remembered.pop(file.uri, None)
        if known is None or known[0] != file.lines:
            known = file.lines, _index_lines(file.lines)
        self._remembered[file.uri] = known
        while len(self._remembered) > _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        return known[1]


def _index_lines(lines: Sequence[str]) -> _LinesByName:
    found: dict[str, list[int]] = {}
    for number, names in uses(lines):
        for name in names:
            found.setdefault(name, []).append(number)
    return found


def _wanted(symbols: Symbols) -> Mapping[str, float]:
    """The names whose uses are looked for, each with its score, the best first."""
    scores: dict[str, float] = {}
    for each in symbols.imports:
        is_used = each.local in symbols.near
        score = _USED_IMPORT * proximity(symbols.near[each.local]) if is_used else 0.0
        name = each.name or each.local
        scores[name] = max(scores.get(name, 0.0), score, _IMPORT)
    for name in symbols.members:
        scores.setdefault(name, _MEMBER * proximity(symbols.near.get(name, 0)))
    return dict(sorted(scores.items(), key=lambda each: (-each[1], each[0]))[:_MAX_NAMES])


def _nearness(path: str, other: str) -> float:
    """From 0 to 1: how much of their folders two files share."""
    some, others = path.split("/")[:-1], other.split("/")[:-1]
    shared = sum(1 for _ in takewhile(bool, map(eq, some, others)))
    return (1 + shared) / (1 + max(len(some), len(others)))


def _ranked(found: Mapping[str, Sequence[_Use]]) -> Iterator[_Use]:
    """The uses of every name, each further one worth less."""
    for of_name in found.values():
        best = _different(sorted(of_name, key=lambda each: -each.score))
        for number, use in enumerate(islice(best, _MOST_USES_OF_NAME)):
            yield _Use(use.file, use.line, use.score * _REPEATED**number)


def _different(found: Sequence[_Use]) -> Iterator[_Use]:
    """The uses that show something, and whose lines were not there before, by their text."""
    seen: set[str] = set()
    for use in found:
        text = use.file.lines[use.line].strip()
        if text not in seen and len(text) <= _LONGEST_LINE and use.lines:
            seen.add(text)
            yield use


def _proposal(use: _Use, number: int) -> TextProposal:
    lines = use.lines
    return TextProposal(
        uri=use.file.uri,
        origin="usages",
        rank=rank("usages", use.score, number),
        first=use.file.first + use.line,
        lines=lines,
        shown=textwrap.dedent("".join(lines).replace("\r\n", "\n")).rstrip("\n") + "\n",
        stamp=use.file.stamp,
    )

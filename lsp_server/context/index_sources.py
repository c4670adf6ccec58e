"""The sources `definitions` and `usages`: signatures and lines of other files, from the index and from disk."""

from __future__ import annotations

import math
import os
import re
import stat
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, takewhile
from operator import eq
from pathlib import Path, PurePosixPath

from lsp_server.context.index.database import IndexedDefinition, files_using, look_up
from lsp_server.context.proposals import CutSnippet, FileStamp, FileText, PromptPlace, TextProposal, rank
from lsp_server.context.symbols import Symbols, identifier_set, proximity, symbols_of, uses
from lsp_server.documents.documents import split_lines
from lsp_server.documents.positions import split_uri
from lsp_server.exclusion.exclusion import is_usable

MAX_NEIGHBOURS = 16
_MAX_ENTRIES = 1_000  # of a folder
_MAX_BYTES = 128 * 1024
_MAX_REMEMBERED = 64


def neighbours_of(uri: str, known: Collection[str]) -> list[str]:
    """The URIs of files in the document's folder with its suffix, but for `known` ones; reads the disk.

    Those that come next to the document by name are first.
    """
    path = _path_of(uri)
    if path is None or not path.suffix:
        return []
    try:
        with os.scandir(path.parent) as entries:
            names = sorted(each.name for each in islice(entries, _MAX_ENTRIES) if each.name.endswith(path.suffix))
    except OSError:  # a document that was not saved yet, or a folder that vanished
        return []
    place = sum(name < path.name for name in names)
    nearest = sorted(range(len(names)), key=lambda index: abs(index - place))
    known_paths = {split_uri(each).path for each in known}  # editors do not encode every character that `as_uri` does
    paths = (path.parent / names[index] for index in nearest if names[index] != path.name)
    return [each.as_uri() for each in paths if each.as_posix() not in known_paths][:MAX_NEIGHBOURS]


class NeighbourTexts:
    """Reads files, and remembers the texts of those that did not change; for one thread."""

    def __init__(self) -> None:
        self._remembered: dict[str, FileText] = {}

    def read(self, uris: Iterable[str]) -> Iterator[FileText]:
        """The files that are text of at most 128 KB in UTF-8."""
        for uri in uris:
            known = self._remembered.pop(uri, None)
            stamp = _stamp(uri)
            if known is None or known.stamp != stamp:
                known = None if stamp is None else _read(uri, stamp)
            if known is not None:
                self._remembered[uri] = known
                yield known
        while len(self._remembered) > _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def gone(self, snippets: Iterable[CutSnippet]) -> frozenset[CutSnippet]:
        """The entries whose files have changed since they were read, and do not contain them any more."""
        changed = [each for each in snippets if each.stamp is not None and _stamp(each.uri) != each.stamp]
        return frozenset(each for each in changed if not self._has(each))

    def _has(self, snippet: CutSnippet) -> bool:
        return any("".join(snippet.lines) in "".join(file.lines) for file in self.read((snippet.uri,)))


def _path_of(uri: str) -> Path | None:
    scheme, path = split_uri(uri)
    return Path(path) if scheme == "file" and is_usable(path) else None


def _stamp(uri: str) -> FileStamp | None:
    """The state of a regular file that is small enough; None if it is none."""
    path = _path_of(uri)
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BYTES else None


def _read(uri: str, stamp: FileStamp) -> FileText | None:
    path = _path_of(uri)
    if path is None:
        return None
    try:
        text = path.read_bytes()[:_MAX_BYTES].decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else FileText(uri, tuple(split_lines(text)), stamp=stamp)


_MAX_PROPOSALS = 24
_MAX_NAMES = 300
# A name that is defined so often says little about which definition is meant.
_MOST_NAMESAKES = 4
# The scores by what is known of a symbol: it is imported from the definition's file and used near the cursor, only
# imported, or a method of the same name as one that is called near the cursor.
_USED_IMPORT, _IMPORT, _NAMESAKE = 1.0, 0.75, 0.5
_ELSEWHERE = 0.7  # the factor of a definition in the imported package, but in another of its files
_PACKAGE_FILES = ("__init__", "index", "mod")


@dataclass(frozen=True, slots=True)
class Definitions:
    """Looks up symbols in the indexes of the workspace folders."""

    indexes: Mapping[Path, Path]
    """The index file of each folder."""

    def propose(self, place: PromptPlace) -> Sequence[TextProposal]:
        """The definitions in other files of the document's folder, best first."""
        symbols = symbols_of(place, self.indexes)
        if symbols is None:
            return ()
        wanted = dict.fromkeys((*(each.name for each in symbols.imports if each.name), *symbols.near))
        found: dict[str, list[IndexedDefinition]] = {}
        for each in look_up(symbols.index, list(wanted)[:_MAX_NAMES]):
            if symbols.is_other_file(each.path):
                found.setdefault(each.name, []).append(each)
        scored = _best(_scored(symbols, found))
        ranked = sorted(scored.items(), key=lambda each: -each[1])[:_MAX_PROPOSALS]
        return [
            _proposal(place.uri_of(symbols.folder / each.path), each, rank("definitions", score, n))
            for n, (each, score) in enumerate(ranked)
        ]


def _scored(symbols: Symbols, found: Mapping[str, Sequence[IndexedDefinition]]) -> Iterator[tuple[IndexedDefinition, float]]:
    """Every definition with its score, a definition perhaps several times."""
    near, imported = symbols.near, set()
    for each in symbols.imports:
        if each.name:
            imported.add(each.name)
            base = _USED_IMPORT * proximity(near[each.local]) if each.local in near else 0.0
            for definition in found.get(each.name, ()):
                if not definition.container and (fit := _fit(definition.path, each.module)):
                    yield definition, fit * max(base, _IMPORT)
        elif each.local in near:
            for name, distance in near.items():
                for definition in found.get(name, ()):
                    if not definition.container and _fit(definition.path, each.module) == 1.0:
                        yield definition, _USED_IMPORT * proximity(distance)
    for name, distance in near.items():
        namesakes = [each for each in found.get(name, ()) if each.container and "(" in each.shown]
        if name not in imported and name in symbols.members and 0 < len(namesakes) <= _MOST_NAMESAKES:
            for definition in namesakes:
                yield definition, _NAMESAKE * proximity(distance) / math.sqrt(len(namesakes))


def _fit(path: str, module: str) -> float:
    """How well a file fits an imported module: 1 if it is the module, less if it lies in the package, 0 if neither."""
    stem = "/" + str(PurePosixPath(path).with_suffix(""))
    folder, _, name = stem.rpartition("/")
    if name in _PACKAGE_FILES:
        stem = folder
    if not module:
        return 0.0
    if module.startswith("/"):
        return 1.0 if stem == module else _ELSEWHERE if stem.startswith(f"{module.rstrip('/')}/") else 0.0
    if stem.endswith(f"/{module}"):
        return 1.0
    return _ELSEWHERE if f"/{module}/" in f"{stem}/" else 0.0


def _best(scored: Iterable[tuple[IndexedDefinition, float]]) -> dict[IndexedDefinition, float]:
    """Each definition's best score; a member whose class is there too leaves."""
    best: dict[IndexedDefinition, float] = {}
    for definition, score in scored:
        best[definition] = max(score, best.get(definition, 0.0))
    classes = {(each.path, each.name) for each in best if not each.container}
    return {each: score for each, score in best.items() if (each.path, each.container) not in classes}


def _proposal(uri: str, found: IndexedDefinition, its_rank: float) -> TextProposal:
    opener = ":" if PurePosixPath(found.path).suffix in (".py", ".pyi") else " {"
    header = f"class {found.container}{opener}\n    " if found.container else ""
    return TextProposal(
        uri=uri,
        origin="definitions",
        rank=its_rank,
        first=found.first,
        lines=found.lines,
        shown=header + found.shown.replace("\n", "\n    ") + "\n" if header else found.shown + "\n",
        stamp=found.stamp,
    )


_LINES_BEFORE, _LINES_AFTER = 24, 8  # around the cursor, that uses are compared with
_MAX_USED_NAMES = 64
_MAX_FILES = 16  # read for one place
_MAX_USES = 32  # compared for one name
_MOST_USES_OF_NAME = 4  # proposed
_MAX_LINES = 4  # of a call that goes over several
_LONGEST_LINE = 160
# The scores by what is known of a name: it is imported and used near the cursor, only imported, or a member near it.
_USE_OF_USED_IMPORT, _USE_OF_IMPORT, _MEMBER = 1.0, 0.75, 0.5
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
    """The text that uses are compared with: the identifiers around the cursor, and the text before it in its line."""

    identifiers: frozenset[str]
    word: str
    beginning: str

    @classmethod
    def of(cls, place: PromptPlace) -> _Here:
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
class _NamedUse:
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

    def propose(self, place: PromptPlace) -> Sequence[TextProposal]:
        """Uses in other files of the document's folder, those that look most like the lines at the cursor first."""
        symbols = symbols_of(place, self._indexes)
        names = {} if symbols is None else _wanted(symbols)
        if symbols is None or not names:
            return ()
        here = _Here.of(place)
        found: dict[str, list[_NamedUse]] = {}
        for file in self._files(symbols, names, place):
            lines_by_name = self._lines_by_name(file)
            likeness = cache(partial(here.likeness, file))  # a line may use several of the names
            for name in names:
                several = found.setdefault(name, [])
                for line in lines_by_name.get(name, ())[: _MAX_USES - len(several)]:
                    several.append(_NamedUse(file, line, names[name] * likeness(line)))
        best = sorted(_ranked(found), key=lambda each: -each.score)
        return [_usage_proposal(use, number) for number, use in enumerate(islice(_different(best), _MAX_PROPOSALS))]

    def _files(self, symbols: Symbols, names: Mapping[str, float], place: PromptPlace) -> Iterator[FileText]:
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
        score = _USE_OF_USED_IMPORT * proximity(symbols.near[each.local]) if is_used else 0.0
        name = each.name or each.local
        scores[name] = max(scores.get(name, 0.0), score, _USE_OF_IMPORT)
    for name in symbols.members:
        scores.setdefault(name, _MEMBER * proximity(symbols.near.get(name, 0)))
    return dict(sorted(scores.items(), key=lambda each: (-each[1], each[0]))[:_MAX_USED_NAMES])


def _nearness(path: str, other: str) -> float:
    """From 0 to 1: how much of their folders two files share."""
    some, others = path.split("/")[:-1], other.split("/")[:-1]
    shared = sum(1 for _ in takewhile(bool, map(eq, some, others)))
    return (1 + shared) / (1 + max(len(some), len(others)))


def _ranked(found: Mapping[str, Sequence[_NamedUse]]) -> Iterator[_NamedUse]:
    """The uses of every name, each further one worth less."""
    for of_name in found.values():
        best = _different(sorted(of_name, key=lambda each: -each.score))
        for number, use in enumerate(islice(best, _MOST_USES_OF_NAME)):
            yield _NamedUse(use.file, use.line, use.score * _REPEATED**number)


def _different(found: Sequence[_NamedUse]) -> Iterator[_NamedUse]:
    """The uses that show something, and whose lines were not there before, by their text."""
    seen: set[str] = set()
    for use in found:
        text = use.file.lines[use.line].strip()
        if text not in seen and len(text) <= _LONGEST_LINE and use.lines:
            seen.add(text)
            yield use


def _usage_proposal(use: _NamedUse, number: int) -> TextProposal:
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

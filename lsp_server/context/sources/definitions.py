"""The source `definitions`: signatures, from the workspace's index, of symbols imported or used near the cursor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lsp_server.context.index.database import Found, look_up
from lsp_server.context.proposals import Place, TextProposal, rank
from lsp_server.context.symbols import Symbols, proximity, symbols_of

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

    def propose(self, place: Place) -> Sequence[TextProposal]:
        """The definitions in other files of the document's folder, best first."""
        symbols = symbols_of(place, self.indexes)
        if symbols is None:
            return ()
        wanted = dict.fromkeys((*(each.name for each in symbols.imports if each.name), *symbols.near))
        found: dict[str, list[Found]] = {}
        for each in look_up(symbols.index, list(wanted)[:_MAX_NAMES]):
            if symbols.is_other_file(each.path):
                found.setdefault(each.name, []).append(each)
        scored = _best(_scored(symbols, found))
        ranked = sorted(scored.items(), key=lambda each: -each[1])[:_MAX_PROPOSALS]
        return [
            _proposal(place.uri_of(symbols.folder / each.path), each, rank("definitions", score, n))
            for n, (each, score) in enumerate(ranked)
        ]


def _scored(symbols: Symbols, found: Mapping[str, Sequence[Found]]) -> Iterator[tuple[Found, float]]:
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


def _best(scored: Iterable[tuple[Found, float]]) -> dict[Found, float]:
    """Each definition's best score; a member whose class is there too leaves."""
    best: dict[Found, float] = {}
    for definition, score in scored:
        best[definition] = max(score, best.get(definition, 0.0))
    classes = {(each.path, each.name) for each in best if not each.container}
    return {each: score for each, score in best.items() if (each.path, each.container) not in classes}


def _proposal(uri: str, found: Found, its_rank: float) -> TextProposal:
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

"""The symbols that a place refers to: what its document imports, and the identifiers around the cursor."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lsp_server.context.identifiers import identifiers
from lsp_server.context.imports import Import, imports_of
from lsp_server.context.proposals import Place
from lsp_server.editing.file_uris import split_uri
from lsp_server.editing.languages import language_id_of, related

_MEMBER = re.compile(r"\.([^\W\d]\w{1,99})")
_LINES_BEFORE, _LINES_AFTER = 40, 15  # around the cursor, whose identifiers are looked up


@dataclass(frozen=True, slots=True)
class Symbols:
    """What a place refers to, and where to look it up.

    Attributes:
        folder: the workspace folder of the document.
        index: that folder's index file.
        path: the document's, in the folder, with `/`.
        languages: the document's, as the editor calls it, and by its path, which a notebook's and many a script's does
            not tell.
        near: the identifiers around the cursor, each with its distance in lines, the nearest first.
        members: those of them that stand behind a dot.
    """

    folder: Path
    index: Path
    path: str
    languages: Collection[str]
    imports: tuple[Import, ...]
    near: Mapping[str, int]
    members: Collection[str]

    def is_other_file(self, path: str) -> bool:
        """Whether a file of the folder is not the document, and in its language."""
        other = language_id_of(PurePosixPath(path).name)
        return path != self.path and any(related(each, other) for each in self.languages)


def symbols_of(place: Place, indexes: Mapping[Path, Path]) -> Symbols | None:
    """The symbols of a place in one of the indexed folders; None elsewhere."""
    path = Path(split_uri(place.uri).path)
    folders = (each for each in indexes if path.is_relative_to(each))
    folder = max(folders, default=None, key=lambda each: len(each.parts))
    if folder is None:
        return None
    relative = path.relative_to(folder).as_posix()
    imports = tuple(imports_of(place.head, relative, place.language_id))
    languages = frozenset((place.language_id, language_id_of(path.name)))
    return Symbols(folder, indexes[folder], relative, languages, imports, *_near(place))


def proximity(distance: int) -> float:
    """From 1 in the cursor's line, falling with the distance to the far end of what is looked up."""
    return 1.0 - 0.3 * min(1.0, distance / _LINES_BEFORE)


def _near(place: Place) -> tuple[Mapping[str, int], Collection[str]]:
    before = [(number, line) for number, line in enumerate(reversed(place.before[-_LINES_BEFORE:]))]
    after = [(number + 1, line) for number, line in enumerate(place.after[:_LINES_AFTER])]
    near: dict[str, int] = {}
    for distance, line in sorted((*before, *after), key=lambda each: each[0]):
        for name in reversed(identifiers(line)):
            near.setdefault(name, distance)
    return near, set(_MEMBER.findall("".join(line for _, line in (*before, *after))))

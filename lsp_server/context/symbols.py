"""The symbols that a place refers to: what its document imports, and the identifiers around the cursor."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lsp_server.context.identifiers import identifiers
from lsp_server.context.imports import SCRIPTS, Import, imports_of
from lsp_server.context.proposals import Place
from lsp_server.editing.file_uris import split_uri

_MEMBER = re.compile(r"\.([^\W\d]\w{1,99})")
# By language: a notebook's path, and many a script's, does not tell it.
_FAMILIES = {"python": ".py", "rust": ".rs", "go": ".go", **dict.fromkeys(SCRIPTS, "script")}
_LINES_BEFORE, _LINES_AFTER = 40, 15  # around the cursor, whose identifiers are looked up


@dataclass(frozen=True, slots=True)
class Symbols:
    """What a place refers to, and where to look it up.

    Attributes:
        folder: the workspace folder of the document.
        index: that folder's index file.
        path: the document's, in the folder, with `/`.
        family: the language that its imports are of, as `_family` names it.
        near: the identifiers around the cursor, each with its distance in lines, the nearest first.
        members: those of them that stand behind a dot.
    """

    folder: Path
    index: Path
    path: str
    family: str
    imports: tuple[Import, ...]
    near: Mapping[str, int]
    members: Collection[str]

    def is_other_file(self, path: str) -> bool:
        """Whether a file of the folder is not the document, and in its language."""
        return path != self.path and _family(path) == self.family


def symbols_of(place: Place, indexes: Mapping[Path, Path]) -> Symbols | None:
    """The symbols of a place in one of the indexed folders; None elsewhere."""
    path = Path(split_uri(place.uri).path)
    folders = (each for each in indexes if path.is_relative_to(each))
    folder = max(folders, default=None, key=lambda each: len(each.parts))
    if folder is None:
        return None
    relative = path.relative_to(folder).as_posix()
    imports = tuple(imports_of(place.head, relative, place.language_id))
    family = _FAMILIES.get(place.language_id) or _family(relative)
    return Symbols(folder, indexes[folder], relative, family, imports, *_near(place))


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


def _family(path: str) -> str:
    suffix = PurePosixPath(path).suffix
    return "script" if re.fullmatch(r"\.(?:[cm]?[jt]sx?|vue|svelte)", suffix) else suffix.removesuffix("i")

"""Symbols that a place refers to: the identifiers around the cursor, and what the document imports."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lsp_server.context.proposals import PromptPlace
from lsp_server.documents.languages import SCRIPTS, language_id_of, related
from lsp_server.documents.positions import split_uri

_LONGEST_LINE = 1000  # of a longer one only the beginning is read: it is data, not code
_IDENTIFIER = re.compile(r"[^\W\d]\w{1,99}")
_NO_USE = re.compile(r"\s*(?:#|//|/?\*|import\b|from\b|use\b|export\s*[{*]|\"\"\"|'''|>>>)")
_DEFINED = re.compile(r"\b(?:class|def|enum|fn|func|function|impl|interface|mod|namespace|struct|trait|type)[^\S\n]+[^\W\d]\w*")
_COMMON = frozenset(
    re.findall(
        r"\S+",
        "False None Self True and any arguments as assert async await bool boolean break case catch class cls "
        "const continue crate debugger def default del delete do double elif else enum except export extends "
        "false finally float fn for from func function global go if impl implements import in instanceof int "
        "interface is lambda let long match mod module mut namespace new nil nonlocal not null number object of "
        "or package pass print private protected pub public raise range readonly return self short static str "
        "string struct super switch this throw trait true try type typeof undefined use var void while with yield ",
    )
)


def identifiers(line: str) -> list[str]:
    """The identifiers of a line in their order, at least two letters each; keywords are left out."""
    return [name for name in _IDENTIFIER.findall(line[:_LONGEST_LINE]) if name not in _COMMON]


def identifier_set(lines: Iterable[str]) -> frozenset[str]:
    """The different identifiers of the lines."""
    return frozenset(name for line in lines for name in identifiers(line))


def uses(lines: Iterable[str]) -> Iterator[tuple[int, frozenset[str]]]:
    """The number of each line that uses identifiers, with these; imports, comments and what a line defines are none."""
    for number, line in enumerate(lines):
        if not _NO_USE.match(line) and (names := frozenset(identifiers(_DEFINED.sub("", line[:_LONGEST_LINE])))):
            yield number, names


def names_used(lines: Iterable[str]) -> set[str]:
    """The identifiers that all lines use together, as `uses` tells them, in one pass over the text."""
    text = "\n".join(line[:_LONGEST_LINE].rstrip("\n") for line in lines if not _NO_USE.match(line))
    return set(_IDENTIFIER.findall(_DEFINED.sub("", text))) - _COMMON


# Repeats that can only fail are possessive: a document may have thousands of blanks or dots in a row.
_PYTHON_FROM = re.compile(r"^[ \t]*+from[ \t]++([\w.]*+)[ \t]++import[ \t]++(\([^()]{1,4000}\)|[^\n(]{1,400})", re.MULTILINE)
_PYTHON_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#;]{1,400})", re.MULTILINE)
_SCRIPT_FROM = re.compile(r"\b(?:import|export)\s++((?:[^\s;'\"()]++\s++){1,200}?)from\s*+['\"]([^'\"\n]{1,400})['\"]")
_SCRIPT_REQUIRE = re.compile(
    r"\b(?:const|let|var)\s+([\w$]+|\{[^{}]{1,2000}\})\s*=\s*require\(\s*['\"]([^'\"\n]{1,400})['\"]\s*\)"
)
_RUST_USE = re.compile(r"^[ \t]*(?:pub(?:\([^()\n]{1,40}\))?[ \t]+)?use[ \t]+([\w:]+)::(\{[^{}]{1,2000}\}|\w+)", re.MULTILINE)
_NAME = re.compile(r"^(?:type\s+)?([\w$]+)(?:\s+as\s+([\w$]+))?$")
_MAX_LINE_CHARS, _MAX_CHARS = 1_000, 64_000  # that are read


@dataclass(frozen=True, slots=True)
class Import:
    """A name that a document imports: `local` is what it is called there, `name` where it comes from.

    `name` is empty if the whole module is imported. `module` is its path in files without a suffix, which a file's
    path must end with; it begins with `/` if it is a path from the workspace folder.
    """

    module: str
    name: str
    local: str


def imports_of(head: Sequence[str], path: str, language_id: str) -> list[Import]:
    """The imports in these lines of the document at `path`, relative to the workspace folder."""
    text = "".join(line[:_MAX_LINE_CHARS] for line in head)[:_MAX_CHARS]
    if language_id == "python":
        return [*_python_from(text, path), *_python_modules(text)]
    if language_id in SCRIPTS:
        return list(_scripts(text, path))
    if language_id == "rust":
        return list(_rust(text))
    return []


def _python_from(text: str, path: str) -> Iterator[Import]:
    for module, names in _PYTHON_FROM.findall(text):
        level = len(module) - len(module.lstrip("."))
        place = module[level:].replace(".", "/")
        if level:
            folder = "/" + "/".join(path.split("/")[:-level])
            place = posixpath.join(folder, place) if place else folder
        for name, local in _names(re.sub(r"#[^\n]*", "", names).strip("() \t\r\n").replace("\\\n", " ")):
            yield Import(place, name, local)
            yield Import(f"{place}/{name}".replace("//", "/"), "", local)  # it may be a module


def _python_modules(text: str) -> Iterator[Import]:
    for modules in _PYTHON_IMPORT.findall(text):
        for part in modules.split(","):
            module, _, alias = part.strip().partition(" as ")
            module = module.strip()
            if re.fullmatch(r"[\w.]+", module):
                yield Import(module.replace(".", "/"), "", alias.strip() or module.rpartition(".")[2])


def _scripts(text: str, path: str) -> Iterator[Import]:
    found = [*_SCRIPT_FROM.findall(text), *_SCRIPT_REQUIRE.findall(text)]
    for names, module in found:
        place = re.sub(r"\.(?:[cm]?[jt]sx?)$", "", module)
        if place.startswith("."):
            place = "/" + posixpath.normpath(posixpath.join(posixpath.dirname(path), place)).lstrip("/.")
        plain, _, braced = names.partition("{")
        for name, local in _names(braced.partition("}")[0].replace(":", " as ")):
            yield Import(place, name, local)
        for part in plain.removeprefix("type ").split(","):
            name = part.strip().removeprefix("* as ").strip()
            if re.fullmatch(r"[\w$]+", name):
                yield Import(place, "" if "*" in part else name, name)


def _rust(text: str) -> Iterator[Import]:
    for module, names in _RUST_USE.findall(text):
        parts = [part for part in module.split("::") if part not in ("crate", "self", "super")]
        for name, local in _names(names.strip("{}")):
            yield Import("/".join(parts), name, local)


def _names(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        if named := _NAME.match(" ".join(part.split())):
            yield named[1], named[2] or named[1]


_MEMBER = re.compile(r"\.([^\W\d]\w{1,99})")
_LINES_BEFORE, _LINES_AFTER = 40, 15  # around the cursor, whose identifiers are looked up


@dataclass(frozen=True, slots=True)
class Symbols:
    """A reference at a place, and where to look it up.

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


def symbols_of(place: PromptPlace, indexes: Mapping[Path, Path]) -> Symbols | None:
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


def _near(place: PromptPlace) -> tuple[Mapping[str, int], Collection[str]]:
    before = [(number, line) for number, line in enumerate(reversed(place.before[-_LINES_BEFORE:]))]
    after = [(number + 1, line) for number, line in enumerate(place.after[:_LINES_AFTER])]
    near: dict[str, int] = {}
    for distance, line in sorted((*before, *after), key=lambda each: each[0]):
        for name in reversed(identifiers(line)):
            near.setdefault(name, distance)
    return near, set(_MEMBER.findall("".join(line for _, line in (*before, *after))))

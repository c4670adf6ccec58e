"""The import statements of a document, read by patterns, since a document in the middle of an edit does not parse."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lsp_server.editing.languages import SCRIPTS

# Repeats that can only fail are possessive: a document may have thousands of blanks or dots in a row.
_PYTHON_FROM = re.compile(
    r"^[ \t]*+from[ \t]++([\w.]*+)[ \t]++import[ \t]++(\([^()]{1,4000}\)|[^\n(]{1,400})", re.MULTILINE
)
_PYTHON_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#;]{1,400})", re.MULTILINE)
_SCRIPT_FROM = re.compile(r"\b(?:import|export)\s++((?:[^\s;'\"()]++\s++){1,200}?)from\s*+['\"]([^'\"\n]{1,400})['\"]")
_SCRIPT_REQUIRE = re.compile(
    r"\b(?:const|let|var)\s+([\w$]+|\{[^{}]{1,2000}\})\s*=\s*require\(\s*['\"]([^'\"\n]{1,400})['\"]\s*\)"
)
_RUST_USE = re.compile(
    r"^[ \t]*(?:pub(?:\([^()\n]{1,40}\))?[ \t]+)?use[ \t]+([\w:]+)::(\{[^{}]{1,2000}\}|\w+)", re.MULTILINE
)
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

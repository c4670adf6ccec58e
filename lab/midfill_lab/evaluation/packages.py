"""Tasks across files: lines of published packages, in pinned versions, that use a symbol of another file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

import platformdirs

from lsp_server.context.index.grammars import GRAMMAR_BY_SUFFIX, Definition, definitions_in
from lsp_server.context.symbols import imports_of
from midfill_lab.evaluation.tasks import source_texts
from protocol.errors import BadInput

Language = Literal["python", "typescript"]

_PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Package:
    """A package of PyPI (`python`) or npm (`typescript`), and its licence as an SPDX expression."""

    language: Language
    name: str
    version: str
    licence: str

    @property
    def folder(self) -> str:
        """The name of its folder in the cache."""
        return f"{self.language}/{self.name.replace('/', '-').removeprefix('@')}-{self.version}"


PACKAGES: Sequence[Package] = (
    Package("python", "bandit", "1.9.4", "Apache-2.0"),
    Package("python", "briefcase", "0.4.7", "BSD-3-Clause"),
    Package("python", "dateparser", "1.5.0", "BSD-3-Clause"),
    Package("python", "huey", "3.5.4", "MIT"),
    Package("python", "icalendar", "7.3.0", "BSD-2-Clause"),
    Package("python", "litestar", "2.25.0", "MIT"),
    Package("python", "pdm", "2.29.4", "MIT"),
    Package("python", "piccolo", "1.38.0", "MIT"),
    Package("python", "pipx", "1.18.4", "MIT"),
    Package("python", "pyinfra", "3.10.0", "MIT"),
    Package("python", "pypdf", "7.1.0", "BSD-3-Clause"),
    Package("python", "smolagents", "1.26.0", "Apache-2.0"),
    Package("python", "streamlink", "8.6.3", "BSD-2-Clause"),
    Package("python", "structlog", "26.1.0", "MIT OR Apache-2.0"),
    Package("python", "tortoise-orm", "1.1.9", "Apache-2.0"),
    Package("typescript", "@auth/core", "0.41.3", "ISC"),
    Package("typescript", "@effect/platform", "0.97.2", "MIT"),
    Package("typescript", "@msgpack/msgpack", "3.1.3", "ISC"),
    Package("typescript", "@xterm/xterm", "6.0.0", "MIT"),
    Package("typescript", "libp2p", "3.3.11", "Apache-2.0 OR MIT"),
    Package("typescript", "msw", "2.15.0", "MIT"),
    Package("typescript", "multiformats", "14.0.5", "Apache-2.0 OR MIT"),
    Package("typescript", "pdf-lib", "1.17.1", "MIT"),
)
"""No training of midfill's own models uses them."""

SUFFIXES: Mapping[Language, tuple[str, ...]] = {"python": (".py",), "typescript": (".ts", ".tsx")}


def packages_folder() -> Path:
    """Where packages are unpacked unless the command line names a folder: in the user's cache."""
    return Path(platformdirs.user_cache_dir("midfill", appauthor=False)) / "evaluation" / "packages"


def unpacked(package: Package, cache: Path) -> Path:
    """The folder of a package's files, downloaded first if it is not there; BadInput if that fails."""
    place = cache / package.folder
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix=".new-") as scratch:
        archive = _download(package, Path(scratch))
        files = Path(scratch) / "files"
        _unpack(archive, files)
        for file in files.rglob("*"):
            if file.is_file() and not _is_source(file, package.language):
                file.unlink()
        shutil.move(files, place)
    return place


def _is_source(file: Path, language: Language) -> bool:
    """Whether a workspace would hold the file: sources, and no output of a build."""
    return file.suffix in SUFFIXES[language] and not file.name.endswith(".d.ts")


def _download(package: Package, folder: Path) -> Path:
    command: tuple[str, ...]
    if package.language == "python":
        options: tuple[str, ...] = ("--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder))
        command = (sys.executable, "-P", "-m", "pip", "download", *options, f"{package.name}=={package.version}")
    else:
        options = ("--silent", "--ignore-scripts", "--pack-destination", str(folder))
        command = (shutil.which("npm") or "npm", "pack", *options, f"{package.name}@{package.version}")
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE_S, cwd=folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise BadInput(f"{package.name} {package.version} cannot be downloaded: {' '.join(said)}") from error
    archives = [*folder.glob("*.whl"), *folder.glob("*.tgz")]
    if len(archives) != 1:
        raise BadInput(f"{package.name} {package.version}: expected one archive, found {len(archives)}")
    return archives[0]


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, whose paths may not lead out of the folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)  # it drops drives, leading slashes and `..`
        return
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


_MAX_PER_FILE = 3
_MAX_PER_PACKAGE = 60
_LEAST_BEHIND_SYMBOL = 4  # code points: the name alone says nothing about the other file
_MOST_CHARS = 120
_LEAST_NAME = 4
_LITERAL = re.compile(r"[\"'`#]|//")  # no context tells what text or comment stands there
_IMPORT = re.compile(r"\s*(?:from\s[^(]*\(|(?:import|export)\b[^{}]*\{)")
_NO_CODE = re.compile(r"\s*(?:#|//|\*|/\*|import\b|from\b|export\s*[{*]|\"\"\"|'''|>>>|\.\.\. |@)")

# Members of built-in types: where they stand, a definition of the same name need not be meant.
_BUILT_IN: Mapping[Language, frozenset[str]] = {
    "python": frozenset(
        name
        for kind in (str, bytes, list, dict, set, tuple, int, float, Path, re.Pattern, re.Match, Exception, Logger)
        for name in dir(kind)
    ),
    "typescript": frozenset(
        re.findall(
            r"\w+",
            "apply bind call catch concat constructor delete entries every exec fill filter finally find findIndex "
            "flat flatMap forEach getTime includes indexOf join keys lastIndexOf length log map match message name "
            "padEnd padStart parse pop prototype push reduce replace resolve reject reverse search shift size slice "
            "some sort splice split startsWith endsWith stringify subarray test then toString trim unshift "
            "values write error warn",
        )
    ),
}


@dataclass(frozen=True, slots=True)
class CrossFileTask:
    """A line to complete from a symbol on: `middle` begins with the symbol, and `after` with the line's end."""

    package: Package
    folder: Path
    path: str  # in the folder, with `/`
    line: int
    symbol: str
    before: str
    middle: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.package.name}/{self.path}:{self.line + 1}"


def source_files(package: Package, folder: Path) -> dict[str, str]:
    """The texts of a package's source files by their paths, without tests as TypeScript names them, too."""
    texts = source_texts(folder, SUFFIXES[package.language])
    return {path: text for path, text in texts.items() if not re.search(r"\.(?:test|spec)\.tsx?$", path)}


def cut_tasks(package: Package, folder: Path, seed: int) -> list[CrossFileTask]:
    """At most 60 tasks of a package, three of a file, the same ones for the same seed."""
    texts = source_files(package, folder)
    definitions = {path: definitions_in(text.encode(), GRAMMAR_BY_SUFFIX[Path(path).suffix]) for path, text in texts.items()}
    homes = _homes(definitions)
    tasks: list[CrossFileTask] = []
    for path, text in texts.items():
        rng = Random(f"{seed}/{package.name}/{path}")
        found = list(_uses(package, folder, path, text, homes, definitions[path]))
        tasks += rng.sample(found, min(_MAX_PER_FILE, len(found)))
    chosen = Random(f"{seed}/{package.name}").sample(tasks, min(_MAX_PER_PACKAGE, len(tasks)))
    return sorted(chosen, key=lambda task: task.name)


def _homes(definitions: Mapping[str, Sequence[Definition]]) -> dict[str, set[str]]:
    """The files that define each name."""
    homes: dict[str, set[str]] = {}
    for path, several in definitions.items():
        for each in several:
            homes.setdefault(each.name, set()).add(path)
    return homes


def _uses(
    package: Package, folder: Path, path: str, text: str, homes: Mapping[str, set[str]], own: Sequence[Definition]
) -> Iterator[CrossFileTask]:
    """Every line with a use of a symbol of another file: an imported name, or a member that one other file defines."""
    lines = text.splitlines(keepends=True)
    names = {each.local: each.name for each in imports_of(lines, path, package.language) if each.name}
    imported = {local for local, name in names.items() if homes.get(name, set()) - {path}}
    mine = {each.name for each in own}
    members = {name for name, files in homes.items() if len(files - {path}) == 1 and name not in mine}
    members -= _BUILT_IN[package.language]
    times = Counter(line.strip() for line in lines)
    imports = _import_lines(lines)
    for number, line in enumerate(lines):
        if number in imports or _NO_CODE.match(line) or times[line.strip()] > 1:
            continue
        place = _symbol(line, imported, members)
        if place is None:
            continue
        end = len(line.rstrip())
        symbol, at = place
        fits = at + len(symbol) + _LEAST_BEHIND_SYMBOL <= end <= at + _MOST_CHARS
        if fits and not _is_in_text(line, at) and not _LITERAL.search(line, at):
            before = "".join(lines[:number]) + line[:at]
            after = line[end:] + "".join(lines[number + 1 :])
            yield CrossFileTask(package, folder, path, number, symbol, before, line[at:end], after)


def _symbol(line: str, imported: set[str], members: set[str]) -> tuple[str, int] | None:
    """The first use in a line of a known symbol, and its column."""
    for found in re.finditer(r"(\.?)\b([A-Za-z_$][\w$]*)", line):
        name = found[2]
        is_call = line.startswith("(", found.end())
        if len(name) >= _LEAST_NAME and (name in members and is_call if found[1] else name in imported):
            return name, found.start(2)
    return None


def _import_lines(lines: Sequence[str]) -> set[int]:
    """The lines of import statements that go over several lines."""
    found, is_open = set(), False
    for number, line in enumerate(lines):
        is_open = is_open or (_IMPORT.match(line) is not None and not re.search(r"[)}]", line))
        if is_open:
            found.add(number)
            is_open = re.search(r"[)}]", line) is None
    return found


def _is_in_text(line: str, at: int) -> bool:
    """Whether the column is in a string or a comment, as far as the line tells."""
    before = line[:at]
    return any(before.count(quote) % 2 for quote in "\"'`") or "#" in before or "//" in before

"""Finds and reads the ignore files that govern a path; a file is checked again only after some seconds."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from lsp_server.exclusion.ignore_rules import Rules, Scope, TooManyWildcards, deciding_rule
from lsp_server.exclusion.verdict import Cause, Verdict

logger = logging.getLogger(__name__)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# Git's default on systems whose file systems ignore case.
_IGNORE_CASE = sys.platform in ("win32", "darwin")
_OWN_NAME = ".midfillignore"
_MAX_REMEMBERED = 4096
_MOST_BYTES = 1 << 21  # of one ignore file
_MOST_REPORTED = 10  # bad lines of one ignore file
_NO_RULES = Rules((), ignore_case=False)


class Remembered(Generic[_Key, _Value]):
    """Caches the values of a function for `keep_s` seconds each."""

    def __init__(self, compute: Callable[[_Key], _Value], now: Callable[[], float], keep_s: float) -> None:
        self._compute, self._now, self._keep_s = compute, now, keep_s
        self._values: dict[_Key, tuple[float, _Value]] = {}

    def __call__(self, key: _Key) -> _Value:
        now = self._now()
        known = self._values.get(key)
        if known is not None and now - known[0] < self._keep_s:
            return known[1]
        value = self._compute(key)
        if len(self._values) >= _MAX_REMEMBERED:
            self._values.clear()
        self._values[key] = now, value
        return value


@dataclass(frozen=True, slots=True, eq=False)
class IgnoreFile:
    """The rules of an ignore file for `folder`, or the problem that kept it from being read."""

    path: Path
    folder: Path
    rules: Rules = _NO_RULES
    problem: str = ""

    @property
    def cause(self) -> Cause:
        return "midfillignore" if self.path.name == _OWN_NAME else "gitignore"


class IgnoreFiles:
    """Applies .midfillignore, .gitignore and .git/info/exclude; it does not read the user's global excludes file.

    .midfillignore precedes .gitignore, which precedes info/exclude; within a kind the innermost file precedes. They
    are searched from the top down to the document's folder. The top is the workspace folder or the repository's root,
    the outer of the two, or the document's own folder if there is neither.

    An ignore file that exists and cannot be read, or would take too long to match, may hold any rule: it excludes
    everything that it governs. What .midfillignore excludes by itself counts as excluded by it, even if another file
    excludes it too.
    """

    def __init__(self, folders: Sequence[Path], now: Callable[[], float], recheck_s: float) -> None:
        self._folders = folders
        self._load = Remembered(self._load_anew, now, recheck_s)
        self._git_folder = Remembered(_git_folder, now, recheck_s)
        self._parsed: dict[tuple[Path, Path], tuple[object, IgnoreFile | None]] = {}

    def verdict(self, path: Path) -> Verdict | None:
        """Which rule of which file excludes `path`, or None."""
        top = self._top(path)
        files = self._governing(top, path)
        own = [file for file in files if file.cause == "midfillignore"]
        return self._verdict(own, top, path, "midfillignore") or self._verdict(files, top, path, "gitignore")

    def _verdict(self, files: Sequence[IgnoreFile], top: Path, path: Path, cause: Cause) -> Verdict | None:
        for file in files:
            if file.problem:
                return Verdict(f"{_shown(file, top)} cannot be used: {file.problem}", cause)
        scopes = [Scope(_shown(file, top), len(file.folder.parts) - len(top.parts), file.rules) for file in files]
        found = deciding_rule(scopes, path.relative_to(top).parts)
        if found is None:
            return None
        scope, rule = found
        return Verdict(f"{rule.text} in {scope.source}, line {rule.line}", cause)

    def _top(self, path: Path) -> Path:
        tops = [folder for folder in self._folders if path.is_relative_to(folder) and path != folder]
        repository = next((folder for folder in path.parents if self._git_folder(folder)), None)
        if repository is not None:
            tops.append(repository)
        return min(tops, key=lambda folder: len(folder.parts), default=path.parent)

    def _governing(self, top: Path, path: Path) -> list[IgnoreFile]:
        """The ignore files that govern `path`, the one with the highest precedence last."""
        folders = [folder for folder in reversed(path.parents) if folder.is_relative_to(top)]
        wanted = [(git / "info" / "exclude", folder) for folder in folders if (git := self._git_folder(folder))]
        wanted += [(folder / name, folder) for name in (".gitignore", _OWN_NAME) for folder in folders]
        return [file for at, folder in wanted if (file := self._load((at, folder))) is not None]

    def _load_anew(self, place: tuple[Path, Path]) -> IgnoreFile | None:
        """The file at a path with the folder that it governs; worktrees share one file for several folders."""
        path, folder = place
        signature = _signature(path)
        known_signature, known = self._parsed.get(place, (None, None))
        if signature == known_signature and not (known and known.problem):
            return known
        file = None if signature is None else _read(path, folder)
        if file and file.problem and not (known and known.problem == file.problem):
            logger.warning("cannot use %s (%s): everything in its folder is excluded", path, file.problem)
        if len(self._parsed) >= _MAX_REMEMBERED:
            self._parsed.clear()
        self._parsed[place] = signature, file
        return file


def _shown(file: IgnoreFile, top: Path) -> str:
    return str(file.path.relative_to(top) if file.path.is_relative_to(top) else file.path)


def _signature(path: Path) -> object:
    """A value that changes when the file does; None if there is no file. Folders and devices count as none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.errno
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode


def _read(path: Path, folder: Path) -> IgnoreFile:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            return IgnoreFile(path, folder, problem=f"it is longer than {_MOST_BYTES} bytes")
        if b"\0" in data:
            return IgnoreFile(path, folder, problem="it is not UTF-8 text")
        lines = data.decode("utf-8-sig", errors="surrogateescape").split("\n")
        rules = Rules(lines, ignore_case=_IGNORE_CASE)
    except OSError as error:
        return IgnoreFile(path, folder, problem=error.strerror or type(error).__name__)
    except TooManyWildcards as error:
        return IgnoreFile(path, folder, problem=str(error))
    for problem in rules.bad[:_MOST_REPORTED]:
        logger.warning("%s, %s; git ignores the line too", path, problem)
    return IgnoreFile(path, folder, rules)


def _git_folder(folder: Path) -> Path | None:
    """The folder that holds info/exclude of the repository whose root is `folder`; None if it is no root."""
    marker = folder / ".git"
    if marker.is_dir():
        return marker
    if not marker.is_file():
        return None
    # A worktree or a submodule: a file that names the folder, which may name the one shared by all worktrees.
    git_folder = folder / _first_line(marker).removeprefix("gitdir:").strip()
    common = git_folder / "commondir"
    return git_folder / _first_line(common).strip() if common.is_file() else git_folder


def _first_line(path: Path) -> str:
    return os.fsdecode(path.read_bytes().partition(b"\n")[0])

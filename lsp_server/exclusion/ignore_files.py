"""Ignore files: finds and reads those that govern a folder, and gives their verdict on each file and folder in it.

As in git, from the outermost folder down to the file, the last rule that matches decides, everything in an excluded
folder is excluded, and what git tracks is not ignored.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from lsp_server.exclusion.git import Tracked, tracked_in
from lsp_server.exclusion.ignore_rules import IgnoreRules, TooManyWildcards

Cause = Literal["secret", "gitignore", "midfillignore", "other", "unchecked"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a document's text stays out of other documents' prompts.

    `cause` "gitignore" concerns these alone, unless the setting `ignoredFiles` is `off`: git ignores a file because it
    is generated or personal, not because it is secret. Every other cause keeps the text out of its own prompts too.
    """

    rule: str  # with its file and line, for messages
    cause: Cause


_NO_RULES = IgnoreRules((), ignore_case=False)
_PRECEDENCE = ("exclude", ".gitignore", ".midfillignore")  # the last first; within a kind the innermost file


@dataclass(frozen=True, slots=True, eq=False)
class IgnoreFile:
    """The rules of an ignore file for `folder`, or the problem that kept it from being read."""

    path: Path
    folder: Path
    rules: IgnoreRules = _NO_RULES
    problem: str = ""

    @property
    def cause(self) -> Cause:
        return "midfillignore" if self.path.name == ".midfillignore" else "gitignore"

    @property
    def precedence(self) -> tuple[int, int]:
        return _PRECEDENCE.index(self.path.name), len(self.folder.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Repository:
    """A repository's root, and its index: a signature that changes with it, and what it tracks."""

    root: Path
    signature: Callable[[], object]
    tracked: Callable[[], Tracked]


@dataclass(frozen=True, slots=True, eq=False)
class FolderRules:
    """The rules for the entries of `folder`, by the ignore files from `top` down to it.

    An ignore file that exists and cannot be read, or would take too long to match, may hold any rule: it excludes
    everything that it governs. What .midfillignore excludes by itself counts as excluded by it, even if another file
    excludes it too, or git tracks it. `signature` changes with the ignore files.
    """

    top: Path
    folder: Path
    signature: bytes = b""
    _files: tuple[IgnoreFile, ...] = ()  # the one with the highest precedence last
    _own: Verdict | None = None  # of .midfillignore about the folder itself
    _all: Verdict | None = None  # of all files about the folder itself
    _repository: Repository | None = None  # the innermost
    _is_its: bool = True  # whether `_all` is by one of the repository's own rules, if it is any
    _below: dict[str, FolderRules] = field(default_factory=dict)  # what `below` has returned

    def below(self, name: str) -> FolderRules:
        """The rules for the entries of a folder in this one, as long as it has no ignore files of its own."""
        if name not in self._below:
            own = self._own or self._decide(self._own_files, name, is_folder=True)[0]
            found, is_its = self._ignored(name, is_folder=True)
            self._below[name] = replace(self, folder=self.folder / name, _own=own, _all=found, _is_its=is_its, _below={})
        return self._below[name]

    def within(self, repository: Repository) -> FolderRules:
        """The same rules in a repository whose root is the folder; it does not undo rules from outside of it."""
        return replace(self, _repository=repository, _is_its=self._all is None, _below={})

    def with_files(self, files: Sequence[IgnoreFile], signature: bytes) -> FolderRules:
        """The rules with those of the ignore files for the folder."""
        in_order = sorted((*self._files, *files), key=lambda file: file.precedence)
        rules = replace(self, signature=signature, _files=tuple(in_order), _below={})
        for file in files:
            if file.problem:
                verdict = Verdict(f"{self._shown(file)} cannot be used: {file.problem}", file.cause)
                own = self._own or (verdict if file.cause == "midfillignore" else None)
                rules = replace(rules, _own=own, _all=verdict, _is_its=False)
        return rules

    def verdict(self, name: str, *, is_folder: bool) -> Verdict | None:
        """Which rule of which file excludes the file or folder; None if it is not excluded, or something in it."""
        if is_folder:
            below = self.below(name)
            own, found, is_its = below._own, below._all, below._is_its
        else:
            own = self._own or self._decide(self._own_files, name, is_folder=False)[0]
            found, is_its = self._ignored(name, is_folder=False)
        if own is not None:
            return own
        return None if is_its and found is not None and self._is_tracked(name, is_folder=is_folder) else found

    def admission(self, name: str) -> bytes | None:
        """Which of `admissions` holds as long as the file cannot have become excluded; None if it is excluded."""
        if self._ignored(name, is_folder=False)[0] is None:
            return self.signature
        return self.admissions[1] if self.verdict(name, is_folder=False) is None else None

    @property
    def admissions(self) -> tuple[bytes, bytes]:
        """Of files that no rule excludes, and of those that are not excluded because git tracks them."""
        index = repr(self._repository.signature()) if self._repository is not None else ""
        return self.signature, self.signature + index.encode()

    @property
    def _own_files(self) -> list[IgnoreFile]:
        return [file for file in self._files if file.cause == "midfillignore"]

    def _ignored(self, name: str, *, is_folder: bool) -> tuple[Verdict | None, bool]:
        """The verdict of all files, and whether it is by a rule of the repository."""
        return (self._all, self._is_its) if self._all else self._decide(self._files, name, is_folder=is_folder)

    def _is_tracked(self, name: str, *, is_folder: bool) -> bool:
        if self._repository is None:
            return False
        tracked = self._repository.tracked()
        return self._path_from(self._repository.root, name) in (tracked.folders if is_folder else tracked.files)

    def _decide(self, files: Sequence[IgnoreFile], name: str, *, is_folder: bool) -> tuple[Verdict | None, bool]:
        for file in reversed(files):
            rule = file.rules.last_match(self._path_from(file.folder, name), is_folder=is_folder)
            if rule is not None:
                said = f"{rule.text} in {self._shown(file)}, line {rule.line}"
                root = self._repository.root if self._repository else self.top
                is_its = len(file.folder.parts) >= len(root.parts)
                return (None if rule.negated else Verdict(said, file.cause)), is_its
        return None, True

    def _path_from(self, folder: Path, name: str) -> str:
        return "/".join((*self.folder.parts[len(folder.parts) :], name))

    def _shown(self, file: IgnoreFile) -> str:
        return str(file.path.relative_to(self.top) if file.path.is_relative_to(self.top) else file.path)


logger = logging.getLogger(__name__)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# Git's default on systems whose file systems ignore case.
_IGNORE_CASE = sys.platform in ("win32", "darwin")
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_MAX_REMEMBERED = 1 << 15
_MOST_BYTES = 1 << 21  # of one ignore file
_ASK_AGAIN_S = 30.0  # after which git is asked again that has not answered
_MOST_REPORTED = 10  # bad lines of one ignore file


@dataclass(frozen=True, slots=True)
class _Repository:
    """The folder in which a repository keeps what concerns its working tree."""

    excludes: str  # info/exclude
    index: str


class IgnoreFiles:
    """Reads .midfillignore, .gitignore and .git/info/exclude; it does not read the user's global excludes file.

    The ignore files of a path are those from the top down to its folder. The top is the workspace folder or the
    repository's root, the outer of the two, or the path's own folder if there is neither. Files are looked at at most
    once in `recheck_s` seconds, and read again if they have changed.
    """

    def __init__(self, folders: Sequence[Path], now: Callable[[], float], recheck_s: float) -> None:
        self._folders = folders
        self._now, self._recheck_s = now, recheck_s
        self._looked = -recheck_s
        # Since that time, by the path of a folder or a file:
        self._places: dict[str, tuple[Path | None, Path | None]] = {}
        self._rules: dict[tuple[str, str], FolderRules] = {}
        self._signatures: dict[str, object] = {}
        # By their signature:
        self._ignore_files: dict[tuple[str, str], tuple[object, IgnoreFile]] = {}
        self._tracked: dict[str, tuple[object, float, Tracked]] = {}

    def verdict(self, path: Path) -> Verdict | None:
        """Which rule of which file excludes the file at `path`, or None."""
        return self.rules_of(path.parent).verdict(path.name, is_folder=False)

    def rules_of(self, folder: Path) -> FolderRules:
        """The rules for the entries of a folder; OSError or ValueError if they cannot be found out."""
        now = self._now()
        if now - self._looked >= self._recheck_s or len(self._rules) >= _MAX_REMEMBERED:
            self._looked = now
            self._places.clear()
            self._rules.clear()
            self._signatures.clear()
        tops = [top for top in self._places_of(folder) if top is not None]
        top = min(tops, key=lambda top: len(top.parts), default=folder)
        missing, here, rules = [], folder, self._rules.get((str(top), str(folder)))
        while rules is None and here != top:
            missing.append(here)
            here = here.parent
            rules = self._rules.get((str(top), str(here)))
        if rules is None:
            rules = self._remember(FolderRules(top, top))
        for each in reversed(missing):
            rules = self._remember(rules.below(each.name))
        return rules

    def _places_of(self, folder: Path) -> tuple[Path | None, Path | None]:
        """The outermost workspace folder and the innermost repository that have the folder, without a recursion."""
        missing, here, places = [], folder, self._places.get(str(folder))
        while places is None:
            missing.append(here)
            places = self._places.get(str(here.parent)) if here.parent != here else (None, None)
            here = here.parent
        for each in reversed(missing):
            workspace = places[0] or (each if each in self._folders else None)
            places = self._places[str(each)] = (workspace, each if _repository(each) else places[1])
        return places

    def _remember(self, rules: FolderRules) -> FolderRules:
        """Remember the rules of a folder, with those of the ignore files in it."""
        folder = str(rules.folder)
        paths = [f"{folder}/.gitignore", f"{folder}/.midfillignore"]
        repository = _repository(rules.folder) if self._places_of(rules.folder)[1] == rules.folder else None
        if repository is not None:
            index = repository.index
            root = rules.folder
            rules = rules.within(Repository(root, lambda: self._signature(index), lambda: self._index(root, index)))
            paths.append(repository.excludes)
        there = [(path, signature) for path in paths if (signature := self._signature(path)) is not None]
        if there or repository is not None:
            signature = hashlib.blake2b(rules.signature + os.fsencode(repr((folder, there))), digest_size=8)
            rules = rules.with_files([self._load(path, rules.folder) for path, _ in there], signature.digest())
        self._rules[str(rules.top), folder] = rules
        return rules

    def _load(self, path: str, folder: Path) -> IgnoreFile:
        """The file at a path with the folder that it governs; worktrees share one file for several folders."""
        place, signature = (path, str(folder)), self._signature(path)
        known_signature, known = self._ignore_files.get(place, (None, None))
        if known is not None and signature == known_signature and not known.problem:
            return known
        file = _read(Path(path), folder)
        if file.problem and not (known and known.problem == file.problem):
            logger.warning("cannot use %s (%s): everything in its folder is excluded", path, file.problem)
        _make_room(self._ignore_files)
        self._ignore_files[place] = signature, file
        return file

    def _index(self, root: Path, path: str) -> Tracked:
        """What the repository tracks; git is asked once its index has changed, or its last answer was none."""
        signature = self._signature(path)
        known_signature, asks_again, known = self._tracked.get(path, (None, math.inf, Tracked()))
        if signature != known_signature or self._now() >= asks_again:
            _make_room(self._tracked, most=8)
            said = tracked_in(root)
            known, asks_again = (Tracked(), self._now() + _ASK_AGAIN_S) if said is None else (said, math.inf)
            self._tracked[path] = signature, asks_again, known
        return known

    def _signature(self, path: str) -> object:
        if path not in self._signatures:
            self._signatures[path] = _signature(path)
        return self._signatures[path]


def _make_room(remembered: dict[_Key, _Value], most: int = _MAX_REMEMBERED) -> None:
    if len(remembered) >= most:
        remembered.clear()


def _signature(path: str) -> object:
    """A value that changes when the file does; None if there is no file. Folders and devices count as none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - most of those looked at are not there
    except OSError as error:
        return None if error.errno in _NOT_THERE else error.errno
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
        rules = IgnoreRules(lines, ignore_case=_IGNORE_CASE)
    except OSError as error:
        return IgnoreFile(path, folder, problem=error.strerror or type(error).__name__)
    except TooManyWildcards as error:
        return IgnoreFile(path, folder, problem=str(error))
    for problem in rules.bad[:_MOST_REPORTED]:
        logger.warning("%s, %s; git ignores the line too", path, problem)
    return IgnoreFile(path, folder, rules)


def _repository(folder: Path) -> _Repository | None:
    """The repository whose root is `folder`; None if it is no root."""
    try:
        mode = os.stat(f"{folder}/.git").st_mode  # noqa: PTH116 - as above
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    marker = folder / ".git"
    if stat.S_ISDIR(mode):
        return _Repository(str(marker / "info" / "exclude"), str(marker / "index"))
    if not stat.S_ISREG(mode):
        return None
    # A worktree or a submodule: a file that names the folder, which may name the one shared by all worktrees.
    git_folder = folder / _first_line(marker).removeprefix("gitdir:").strip()
    common = git_folder / "commondir"
    shared = git_folder / _first_line(common).strip() if common.is_file() else git_folder
    return _Repository(str(shared / "info" / "exclude"), str(git_folder / "index"))


def _first_line(path: Path) -> str:
    return os.fsdecode(path.read_bytes().partition(b"\n")[0])

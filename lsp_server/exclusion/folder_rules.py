"""What the ignore files that govern a folder say about each file and folder in it.

As in git, from the outermost folder down to the file, the last rule that matches decides, everything in an excluded
folder is excluded, and what git tracks is not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lsp_server.exclusion.git_index import Tracked
from lsp_server.exclusion.ignore_rules import Rules
from lsp_server.exclusion.verdict import Cause, Verdict

_NO_RULES = Rules((), ignore_case=False)
_PRECEDENCE = ("exclude", ".gitignore", ".midfillignore")  # the last first; within a kind the innermost file


@dataclass(frozen=True, slots=True, eq=False)
class IgnoreFile:
    """The rules of an ignore file for `folder`, or the problem that kept it from being read."""

    path: Path
    folder: Path
    rules: Rules = _NO_RULES
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
            self._below[name] = replace(
                self, folder=self.folder / name, _own=own, _all=found, _is_its=is_its, _below={}
            )
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

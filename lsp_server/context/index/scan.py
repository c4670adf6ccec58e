"""Brings the index of a workspace folder up to date: reads what changed, removes what vanished or is excluded."""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

from lsp_server.context.cutting import FileStamp
from lsp_server.context.identifiers import names_used
from lsp_server.context.index.database import Indexed, IndexWriter
from lsp_server.context.index.grammars import GRAMMAR_BY_SUFFIX, definitions_in

logger = logging.getLogger(__name__)

_MOST_FILES = 20_000
_MOST_FOLDERS = 20_000
_MOST_BYTES = 512 * 1024  # of a file: a longer one is generated or data
_MOST_NAMES = 20_000  # that a file uses
_MOST_CPU_S = 300.0
_MOST_INDEX_BYTES = 256 * 1024 * 1024
# Folders with copies of other projects, or with none of the user's text.
_SKIPPED = frozenset(
    {"node_modules", "__pycache__", "site-packages", "bower_components", "vendor", "third_party", "venv"}
)
_VIRTUAL_ENVIRONMENT = "pyvenv.cfg"
_SURROGATE = re.compile("[\ud800-\udfff]")  # of a name that is not UTF-8; SQLite holds none
IGNORE_FILES = frozenset({".gitignore", ".midfillignore"})
"""Names of files whose change concerns the files below their folder."""


class Admissions(Protocol):
    """The verdicts about what lies in a folder, as `lsp_server.exclusion.exclusion.FolderExclusion` gives them."""

    @property
    def admissions(self) -> tuple[bytes, ...]: ...

    def admits_folder(self, name: str) -> bool: ...

    def admission(self, name: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be in an index: the rules of each folder, and why a folder of another file system is not walked."""

    of_folder: Callable[[Path], Admissions]
    unfit: Callable[[Path], str | None] = lambda _: None


class _Everything:
    admissions = (b"",)

    def admits_folder(self, _: str) -> bool:
        return True

    def admission(self, _: str) -> bytes | None:
        return b""


NO_RULES = Rules(lambda _: _Everything())
"""For folders that hold nothing private, such as published packages."""


@dataclass(slots=True)
class Work:
    """What a scan or an update did, in files."""

    looked_at: int = 0  # their time and size
    checked: int = 0  # against the rules
    read: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    is_complete: bool = True  # False if a limit ended it


def scan(folder: Path, writer: IndexWriter, rules: Rules) -> Work:
    """Bring the whole index of `folder`, which is given without links, up to date.

    Unreadable files are skipped with a line in the log. A scan that a limit ends keeps what it has read; files that
    it did not come to keep their earlier entries.
    """
    updating, work = _Updating(folder, writer, rules), Work()
    until, is_over = time.process_time() + _MOST_CPU_S, updating.is_full()
    known, seen = writer.files(), set[str]()
    for path, stamp, admissions in _walk(folder, rules, work):
        if work.looked_at >= _MOST_FILES or is_over:
            work.is_complete = False
            break
        reads = len(work.read)
        if updating.keep(path, stamp, admissions, known.get(path), work):
            seen.add(path)
        is_over = len(work.read) > reads and (updating.is_full() or time.process_time() > until)
    left = known.keys() - seen
    if work.is_complete:
        writer.remove(left)
        work.removed += sorted(left)
    else:  # of what was not reached, only what must not be there leaves
        updating.update(left, work)
    return work


def update(folder: Path, writer: IndexWriter, rules: Rules, paths: Iterable[str]) -> Work:
    """Bring the index up to date with these files, which changed: their paths in `folder`, with `/`.

    An ignore file stands for the files below its folder that the index has.
    """
    updating, work = _Updating(folder, writer, rules), Work()
    wanted = {path for path in paths if not _SURROGATE.search(path)}
    for path in [path for path in wanted if path.rpartition("/")[2] in IGNORE_FILES]:
        wanted |= writer.files(path[: path.rfind("/") + 1]).keys()
    if updating.is_full():
        wanted = {path for path in wanted if writer.file(path)}
    updating.update(wanted, work)
    return work


@dataclass(frozen=True, slots=True)
class _Updating:
    """The index of a folder that is brought up to date."""

    folder: Path
    writer: IndexWriter
    rules: Rules

    def is_full(self) -> bool:
        return self.writer.size > _MOST_INDEX_BYTES

    def update(self, paths: Iterable[str], work: Work) -> None:
        """Bring what the index says about these files up to date, as if a walk came to them."""
        folders: dict[str, Admissions | None] = {}
        removed: list[str] = []
        for path in sorted(paths):
            within, _, name = path.rpartition("/")
            if _suffix(name) not in GRAMMAR_BY_SUFFIX:
                continue
            if within not in folders:
                folders[within] = _admissions(self.folder, within, self.rules)
            admissions, known = folders[within], self.writer.file(path)
            stamp = _stamp(self.folder / path)
            is_kept = bool(admissions and stamp and self.keep(path, stamp, admissions, known, work))
            if known is not None and not is_kept:
                removed.append(path)
        self.writer.remove(removed)
        work.removed += removed

    def keep(self, path: str, stamp: FileStamp, admissions: Admissions, known: Indexed | None, work: Work) -> bool:
        """Whether the file is in the index now: reads it if it changed, and asks the rules if their answer may have."""
        work.looked_at += 1
        admission = known.admission if known is not None and known.admission in admissions.admissions else None
        if admission is None:
            work.checked += 1
            admission = admissions.admission(path.rpartition("/")[2])
            if admission is None:
                return False
        if known is None or known.stamp != stamp:
            return self._read(path, Indexed(stamp, admission), work)
        if known.admission != admission:
            self.writer.admit(path, admission)
        return True

    def _read(self, path: str, indexed: Indexed, work: Work) -> bool:
        try:
            with (self.folder / path).open("rb") as file:
                source = file.read(_MOST_BYTES)
        except OSError as error:
            logger.info("%s is not in the index: %s", path, error)
            return False
        self.writer.put(path, indexed, definitions_in(source, GRAMMAR_BY_SUFFIX[_suffix(path)]), _used(source))
        work.read.append(path)
        return True


def _used(source: bytes) -> list[str]:
    """The identifiers that a file uses."""
    return list(islice(sorted(names_used(source.decode("utf-8", "replace").splitlines())), _MOST_NAMES))


def _walk(folder: Path, rules: Rules, work: Work) -> Iterator[tuple[str, FileStamp, Admissions]]:
    """The source files in folders that may be walked, breadth first, without following links."""
    waiting, folders = deque([""]), 0
    devices = {folder.stat().st_dev} if folder.exists() else set()
    while waiting:
        within, folders = waiting.popleft(), folders + 1
        if folders > _MOST_FOLDERS:
            work.is_complete = False
            return
        try:
            with os.scandir(folder / within) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            if within and any(entry.name == _VIRTUAL_ENVIRONMENT for entry in entries):
                continue
            admissions = rules.of_folder(folder / within)
        except (OSError, ValueError) as error:
            logger.info("%s is not in the index: %s", folder / within, error)
            continue
        for entry in entries:
            name, path = entry.name, f"{within}{entry.name}"
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not _is_skipped(name) and admissions.admits_folder(name):
                        device = entry.stat(follow_symlinks=False).st_dev
                        if device in devices or rules.unfit(folder / path) is None:
                            devices.add(device)
                            waiting.append(f"{path}/")
                elif _suffix(name) in GRAMMAR_BY_SUFFIX and entry.is_file(follow_symlinks=False):
                    stamp = _stamp_of(entry.stat(follow_symlinks=False))
                    if stamp is not None and not _SURROGATE.search(path):
                        yield path, stamp, admissions
            except (OSError, ValueError) as error:
                logger.info("%s is not in the index: %s", entry.path, error)


def _admissions(folder: Path, within: str, rules: Rules) -> Admissions | None:
    """The rules of a folder in the workspace folder; None if no walk comes there."""
    here = folder
    try:
        for name in filter(None, within.split("/")):
            here = here / name
            if _is_skipped(name) or here.is_symlink() or (here / _VIRTUAL_ENVIRONMENT).exists():
                return None
        return rules.of_folder(here)
    except (OSError, ValueError) as error:
        logger.info("%s is not in the index: %s", here, error)
        return None


def _suffix(name: str) -> str:
    return name[name.rfind(".") :] if "." in name[1:] else ""


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def _stamp(file: Path) -> FileStamp | None:
    try:
        return _stamp_of(file.lstat())
    except (OSError, ValueError):
        return None


def _stamp_of(status: os.stat_result) -> FileStamp | None:
    """The state of a regular file that is small enough; None if it is none."""
    is_read = stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES
    return (status.st_mtime_ns, status.st_size) if is_read else None

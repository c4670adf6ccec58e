"""The scan of a workspace folder into its index: which folders may be indexed, what changed, and when to scan again."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil
from filelock import FileLock, Timeout

from lsp_server.context.index.database import Indexed, IndexWriter, LastScan, index_file, remove_index, remove_unused
from lsp_server.context.index.grammars import GRAMMAR_BY_SUFFIX, definitions_in
from lsp_server.context.index.keeper import IndexAnswer, IndexRequest, When, runs_on_battery
from lsp_server.context.proposals import FileStamp
from lsp_server.context.symbols import names_used
from lsp_server.exclusion.exclusion import Exclusion

PROJECT_MARKS = (
    *(".git", ".hg", ".svn", ".jj"),
    *("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"),
    *("package.json", "tsconfig.json", "jsconfig.json", "deno.json"),
    *("go.mod", "go.work", "Cargo.toml", "Makefile", "CMakeLists.txt"),
    ".midfillignore",
)
"""One of these in a folder, or in one around it, says that the folder belongs to a project."""

# File systems of other machines, as Linux, macOS and Windows call them. Those that share folders of a host with a
# virtual machine or a container on it are not here.
_REMOTE_NAMES = (
    "nfs nfs3 nfs4 cifs smb smb2 smb3 smbfs afpfs webdav davfs 9p afs ceph glusterfs lustre ncpfs sshfs "
    "fuse.sshfs fuse.rclone fuse.s3fs fuse.gcsfuse fuse.davfs2 fuse.glusterfs fuse.ceph osxfuse macfuse"
)
_REMOTE = frozenset(_REMOTE_NAMES.split())
_REMOVABLE_OPTIONS = frozenset({"removable", "remote", "cdrom"})  # by which psutil tells drives of Windows
_REMOVABLE_PLACES = tuple(map(Path, ("/media", "/run/media", "/Volumes")))  # where desktops mount what is plugged in


class Mount(NamedTuple):
    """A mounted file system."""

    place: Path
    file_system: str
    options: str = ""


def mounts() -> Iterator[Mount]:
    """The mounted file systems."""
    for each in psutil.disk_partitions(all=True):
        yield Mount(Path(each.mountpoint), each.fstype.lower(), each.opts)


def unfit(folder: Path, home: Path, mounted: Callable[[], Iterable[Mount]] = mounts) -> str | None:
    """Why the folder, which is given without links, is not indexed; None if it may be."""
    if folder.parent == folder or home.is_relative_to(folder):
        return "it is a whole disk, or holds the home folder"
    outer = (each for each in (folder, *folder.parents) if each.parent != each and not home.is_relative_to(each))
    if not any((each / mark).exists() for each in outer for mark in PROJECT_MARKS):
        return f"neither it nor a folder around it has a mark of a project, such as {PROJECT_MARKS[0]}"
    return unfit_disk(folder, mounted)


def unfit_disk(folder: Path, mounted: Callable[[], Iterable[Mount]] = mounts) -> str | None:
    """Why nothing on the folder's file system is indexed; None if it may be."""
    around = [each for each in mounted() if folder.is_relative_to(each.place)]
    mount = max(around, key=lambda each: len(each.place.parts), default=None)
    if mount is None:
        return None
    if mount.file_system in _REMOTE or not _REMOVABLE_OPTIONS.isdisjoint(mount.options.split(",")):
        return f"{mount.place} is on another machine, or removable ({mount.file_system} {mount.options})"
    if any(mount.place.is_relative_to(place) for place in _REMOVABLE_PLACES):
        return f"{mount.place} is where removable disks are mounted"
    return None


logger = logging.getLogger(__name__)

_MOST_FILES = 20_000
_MOST_FOLDERS = 20_000
_MOST_BYTES = 512 * 1024  # of a file: a longer one is generated or data
_MOST_NAMES = 20_000  # that a file uses
_MOST_CPU_S = 300.0
_MOST_INDEX_BYTES = 256 * 1024 * 1024
# Folders with copies of other projects, or with none of the user's text.
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "bower_components", "vendor", "third_party", "venv"})
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
    """Admits files to an index: the rules of each folder, and why a folder of another file system is not walked."""

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
    """The files that a scan or an update has read and removed."""

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


_COST_TIMES = 100  # a scan takes at most one hundredth of the time
_LEAST_APART_S = 60.0
_AFTER_LIMIT_S = 24 * 3600.0  # a folder beyond a limit will be so tomorrow
_RECHECK_S = 60.0  # of ignore files, during a scan
_UNFIT_APART_S = 3600.0  # it may become a project
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def answer(request: IndexRequest, is_on_battery: Callable[[], bool] | None = None) -> IndexAnswer:
    """Bring the index of a folder up to date as the request asks."""
    since = time.process_time()
    folder = Path(request.folder).resolve()
    file = index_file(folder)
    if (problem := unfit(folder, Path.home().resolve())) is not None:
        logger.info("%s is not indexed: %s", folder, problem)
        remove_index(file)
        return IndexAnswer(_UNFIT_APART_S, is_unfit=True)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(file.with_name(f"{file.name}.lock"), timeout=0):
            return _bring_up_to_date(folder, file, request, since, is_on_battery or runs_on_battery)
    except Timeout:
        return IndexAnswer(_LEAST_APART_S, is_busy=True)


def _bring_up_to_date(
    folder: Path, file: Path, request: IndexRequest, since: float, is_on_battery: Callable[[], bool]
) -> IndexAnswer:
    exclusion = Exclusion([folder.as_uri()], time.monotonic, _RECHECK_S)
    rules = Rules(exclusion.rules_of, unfit_disk)
    try:
        with closing(IndexWriter(file)) as writer:
            last = writer.last_scan()
            if _is_due(request.scan, last, time.time(), is_on_battery):
                work = scan(folder, writer, rules)
                last = LastScan(time.time(), time.process_time() - since, work.is_complete)
                writer.scanned(last)
                remove_unused()
            else:
                work = update(folder, writer, rules, request.files)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGED:
            remove_index(file)  # the next scan builds it anew
        raise
    file.touch()
    again_s = max(_LEAST_APART_S, _wait_s(last, time.time(), "due"))
    return IndexAnswer(
        again_s,
        looked_at=work.looked_at,
        checked=work.checked,
        read=len(work.read),
        removed=len(work.removed),
        cpu_s=time.process_time() - since,
    )


def _is_due(when: When, last: LastScan | None, now: float, is_on_battery: Callable[[], bool]) -> bool:
    if when in ("no", "now") or last is None:
        return when != "no"
    return _wait_s(last, now, when) == 0 and not is_on_battery()


def _wait_s(last: LastScan | None, now: float, when: When) -> float:
    """The time until a scan is due; what a window missed while it was closed does not wait for the cost's sake."""
    if last is None or last.finished > now:
        return 0.0
    apart = _AFTER_LIMIT_S if not last.is_complete else 0.0
    apart = max(apart, _LEAST_APART_S, _COST_TIMES * last.cpu_s if when == "due" else 0.0)
    return max(0.0, last.finished + apart - now)

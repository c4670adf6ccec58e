"""Folders of the disk tier, one per model: the SQLite index of saved pages, locks, and the removal of files.

Transactions are atomic. Deleted rows are overwritten with zeros, so that neither token ids nor document names remain.
Writes are not synced, so a power failure may damage the index.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sqlite3
import stat
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from kv_store.interface import BadFileError, FolderInUseError, StoreError

INDEX_NAME = "index.sqlite3"
JOURNAL_SUFFIXES = ("-journal", "-wal", "-shm")
MAX_INDEX_BYTES = 256 * 2**20
"""An index may be larger only if the pages beside it are, too."""

_TABLES = {
    "pages": (
        "CREATE TABLE pages (number INTEGER PRIMARY KEY, digest BLOB, parent BLOB, token_ids BLOB,"
        " size INTEGER, sha256 BLOB, used INTEGER)"
    ),
    "owners": (
        "CREATE TABLE owners (number INTEGER, document TEXT, count INTEGER, PRIMARY KEY (number, document)) WITHOUT ROWID"
    ),
    "snapshots": (
        "CREATE TABLE snapshots (number INTEGER PRIMARY KEY, digest BLOB, parent BLOB, count INTEGER, size INTEGER, sha256 BLOB)"
    ),
}
_SETTINGS = (
    "locking_mode = EXCLUSIVE",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "secure_delete = ON",
    "synchronous = OFF",
    "journal_mode = TRUNCATE",
)


class SavedPage(msgspec.Struct, frozen=True, array_like=True):
    """One row: a page's place in its prefix, and the file with its KV."""

    number: int
    """Of the file."""
    digest: bytes
    """Digest of the prefix that ends with the page."""
    parent: bytes
    """Digest of the prefix before the page."""
    token_ids: bytes
    """As `page_tree.pack` returns them."""
    size: int
    """Bytes of the whole file."""
    sha256: bytes
    """Of the whole file."""
    used: int
    """Rank by last use among the saved pages: the higher, the later."""


class SavedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One row: the place of a snapshot of recurrent layers in a prefix, and its file."""

    number: int
    """Of the file; the higher, the later it was written."""
    digest: bytes
    """Digest of the prefix up to there."""
    parent: bytes
    """Digest of the prefix before the page."""
    count: int
    """Tokens of the page up to there."""
    size: int
    """Bytes of the whole file."""
    sha256: bytes
    """Of the whole file."""


class _Owner(msgspec.Struct, frozen=True, array_like=True):
    number: int
    document: str
    count: int


class PageIndex:
    """An open index. Opening raises BadFileError for an unusable file; failed writes raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_files(path)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite would make it readable for others
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise BadFileError(path, f"cannot be opened: {error}") from error
        try:
            self._prepare()
        except (sqlite3.Error, BadFileError) as error:
            self._database.close()
            raise error if isinstance(error, BadFileError) else BadFileError(path, str(error)) from error

    def read(self) -> tuple[list[SavedPage], Mapping[int, dict[str, int]]]:
        """All pages, unordered, and by file number the owners of a page, with the number of its tokens that they used.

        Raises BadFileError if a value has a wrong type.
        """
        owners: dict[int, dict[str, int]] = defaultdict(dict)
        try:
            rows = self._database.execute("SELECT * FROM pages").fetchall()
            pages = msgspec.convert(rows, list[SavedPage])
            rows = self._database.execute("SELECT * FROM owners").fetchall()
            for owner in msgspec.convert(rows, list[_Owner]):
                owners[owner.number][owner.document] = owner.count
        except (sqlite3.Error, msgspec.ValidationError) as error:
            raise BadFileError(self.path, str(error)) from error
        return pages, owners

    def read_snapshots(self) -> list[SavedSnapshot]:
        """All snapshots, in the order in which they were written; BadFileError if a value has a wrong type."""
        try:
            rows = self._database.execute("SELECT * FROM snapshots ORDER BY number").fetchall()
            return msgspec.convert(rows, list[SavedSnapshot])
        except (sqlite3.Error, msgspec.ValidationError) as error:
            raise BadFileError(self.path, str(error)) from error

    def write(
        self,
        removed: Iterable[int] = (),
        changed: Iterable[tuple[SavedPage, Mapping[str, int]]] = (),
        forgotten: Iterable[str] = (),
        snapshots: Iterable[SavedSnapshot] = (),
    ) -> None:
        """Delete pages and snapshots by their files, write others, pages with owners, and delete documents' names.

        In one transaction.
        """
        pages = [(msgspec.structs.astuple(page), owners) for page, owners in changed]
        renewed = [(page[0],) for page, _ in pages]
        owned = [(page[0], document, count) for page, owners in pages for document, count in owners.items()]
        gone = [(number,) for number in removed]
        with self._transaction() as database:
            database.executemany("DELETE FROM pages WHERE number = ?", gone)
            database.executemany("DELETE FROM snapshots WHERE number = ?", gone)
            database.executemany("DELETE FROM owners WHERE number = ?", [*gone, *renewed])
            database.executemany("REPLACE INTO pages VALUES (?, ?, ?, ?, ?, ?, ?)", [page for page, _ in pages])
            database.executemany("INSERT INTO owners VALUES (?, ?, ?)", owned)
            added = [msgspec.structs.astuple(snapshot) for snapshot in snapshots]
            database.executemany("REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", added)
            database.executemany("DELETE FROM owners WHERE document = ?", [(document,) for document in forgotten])

    def close(self) -> None:
        """Close the file; all writes are in it."""
        self._database.close()

    def _prepare(self) -> None:
        for setting in _SETTINGS:
            self._database.execute(f"PRAGMA {setting}")
        ((found,),) = self._database.execute("PRAGMA quick_check(1)").fetchall()
        if found != "ok":
            raise BadFileError(self.path, f"damaged: {found}")
        tables = dict(self._database.execute("SELECT name, sql FROM sqlite_master"))
        if not tables:
            with self._transaction() as database:
                for statement in _TABLES.values():
                    database.execute(statement)
        elif tables != _TABLES:
            raise BadFileError(self.path, "the index has another version")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            finally:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise OSError(f"{self.path}: {error}") from error


def index_files(folder: Path) -> list[Path]:
    """The files that may belong to an index."""
    return [folder / f"{INDEX_NAME}{suffix}" for suffix in ("", *JOURNAL_SUFFIXES)]


def _check_files(path: Path) -> None:
    """Refuse other than regular files: SQLite would block on a pipe, and follow a link."""
    for part in index_files(path.parent):
        try:
            status = part.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BadFileError(part, f"cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise BadFileError(part, "not a regular file")
        if status.st_size > MAX_INDEX_BYTES and status.st_size > _bytes_of_pages(path.parent):
            raise BadFileError(part, f"oversized: more than {MAX_INDEX_BYTES} bytes, and than its pages")


def _bytes_of_pages(folder: Path) -> int:
    return sum(path.lstat().st_size for path in our_files(folder, PAGE_NAME))


LOCK_NAME = "lock"
LOCK_PATIENCE_S = 0.5
"""Seconds for which another process may lock a folder to remove it, or a document from it."""

PAGE_NAME = re.compile(r"[0-9a-f]{8,16}\.safetensors")
OUR_NAME = re.compile(r"[0-9a-f]{8,16}\.(safetensors|tmp)|index\.(json|tmp)|" + re.escape(INDEX_NAME) + r"(-\w+)?")
FOLDER_NAME = re.compile(r"[0-9a-f]{16}")

log = logging.getLogger(__name__)


def page_name(number: int) -> str:
    """The name of a page's file."""
    return f"{number:08x}.safetensors"


def remove_other_models(root: Path, ours: Path | None = None) -> list[str]:
    """Remove what was saved with other fingerprints, unless in use; returns the reasons, naming the folders.

    Without a folder of `ours`, removes all that no process has open.

    A purge must reach every page, and the budget covers everything on disk.
    """
    removed = []
    for folder in model_folders(root):
        if folder == ours:
            continue
        try:
            remove_folder(folder)
        except (StoreError, OSError) as error:
            log.info("not removed: %s", error)
        else:
            removed.append(f"{folder}: saved with other weights, tokenizer, RoPE settings or arithmetic")
    return removed


def model_folders(root: Path) -> list[Path]:
    """The folders of all models."""
    paths = root.iterdir() if root.is_dir() else ()
    return [path for path in paths if FOLDER_NAME.fullmatch(path.name) and (path / LOCK_NAME).is_file()]


def remove_folder(folder: Path) -> None:
    """Remove a folder's files, its lock last and while holding it; raises the errors of `acquire`."""
    lock = acquire(folder)
    try:
        empty(folder)
    finally:
        lock.release()
    if sys.platform == "win32" and folder.is_dir():  # where no file is removed that a process has open
        empty(folder)


def open_folder(folder: Path) -> tuple[FileLock, PageIndex]:
    """The lock on a folder, which ends with the process, and the index in it; raises the errors of both."""
    lock = lock_folder(folder, LOCK_PATIENCE_S)
    try:
        return lock, PageIndex(folder / INDEX_NAME)
    except BaseException:
        lock.release()
        raise


def lock_folder(folder: Path, patience_s: float = 0.0) -> FileLock:
    """The lock on a folder, which is made if necessary; raises the errors of `acquire`."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink():
            raise BadFileError(folder, "a symbolic link")
        folder.chmod(0o700)
        try:
            return acquire(folder, patience_s)
        except FileNotFoundError:
            if folder.is_dir():  # else another process has just removed it
                raise


def acquire(folder: Path, patience_s: float = 0.0) -> FileLock:
    """The lock on a folder.

    Raises FolderInUseError if another process keeps it for longer than `patience_s`, BadFileError if it is no regular
    file, OSError if it cannot be opened.
    """
    path = folder / LOCK_NAME
    while True:
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise BadFileError(path, "not a regular file")
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb") as before:
            lock = FileLock(path, timeout=patience_s, mode=0o600, thread_local=False)
            try:
                lock.acquire()
            except Timeout as error:
                raise FolderInUseError(f"{folder}: another process keeps its pages here") from error
            if path.is_file() and os.path.samestat(os.fstat(before.fileno()), path.stat()):
                return lock
            lock.release()  # of a file that another process has removed: who locks the new one would not see it


def set_aside(folder: Path) -> None:
    """Rename an unusable folder and remove the KV in it, which a purge could no longer reach."""
    names = (f"{folder.name}.unusable{number or ''}" for number in itertools.count())
    aside = next(path for name in names if not os.path.lexists(path := folder.with_name(name)))
    folder.rename(aside)
    if aside.is_dir() and not aside.is_symlink():
        empty(aside)


def empty(folder: Path) -> None:
    """Remove our own files and the lock, and the folder if nothing else is in it."""
    remove_files(folder)
    if (folder / LOCK_NAME).is_file():
        remove_file(folder / LOCK_NAME)
    if not any(folder.iterdir()):
        folder.rmdir()


def remove_files(folder: Path) -> None:
    """Remove our own files, but not the lock."""
    for path in our_files(folder, OUR_NAME):
        if path.is_file() or path.is_symlink():
            remove_file(path)


def our_files(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """The files with such a name."""
    return [path for path in folder.iterdir() if name.fullmatch(path.name)]


def remove_file(path: Path) -> None:
    """Remove a file; logs a failure."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # a folder in its place, or a read-only disk
        log.warning("%s cannot be removed: %s", path, error.strerror)

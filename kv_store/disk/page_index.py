"""The index of saved pages: an SQLite database that a killed process leaves valid.

Transactions are atomic. Deleted rows are overwritten with zeros, so that neither token ids nor document names remain.
Writes are not synced, so a power failure may damage the index.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kv_store.errors import BadFileError
from kv_store.page_tree import TOKEN_BYTES

INDEX_NAME = "index.sqlite3"
JOURNAL_SUFFIXES = ("-journal", "-wal", "-shm")
MAX_INDEX_BYTES = 256 * 2**20

_TABLES = {
    "pages": (
        "CREATE TABLE pages (number INTEGER PRIMARY KEY, digest BLOB, parent BLOB, token_ids BLOB,"
        " size INTEGER, sha256 BLOB, used INTEGER)"
    ),
    "uses": (
        "CREATE TABLE uses (number INTEGER, document TEXT, count INTEGER, PRIMARY KEY (number, document)) WITHOUT ROWID"
    ),
}
_USED_BY_NO_OTHER = """
    SELECT number FROM pages JOIN uses USING (number) WHERE document = :document AND NOT EXISTS (
        SELECT 1 FROM uses AS others WHERE others.number = pages.number AND others.document <> :document
        AND others.count * :token_bytes >= length(token_ids)
    )
"""
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


class _Use(msgspec.Struct, frozen=True, array_like=True):
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
        """All pages, unordered, and by file number the number of a page's tokens that each document used.

        Raises BadFileError if a value has a wrong type.
        """
        uses: dict[int, dict[str, int]] = defaultdict(dict)
        try:
            rows = self._database.execute("SELECT * FROM pages").fetchall()
            pages = msgspec.convert(rows, list[SavedPage])
            rows = self._database.execute("SELECT * FROM uses").fetchall()
            for session in msgspec.convert(rows, list[_Use]):
                uses[session.number][session.document] = session.count
        except (sqlite3.Error, msgspec.ValidationError) as error:
            raise BadFileError(self.path, str(error)) from error
        return pages, uses

    def write(
        self,
        removed: Iterable[int] = (),
        changed: Iterable[tuple[SavedPage, Mapping[str, int]]] = (),
        forgotten: str | None = None,
    ) -> None:
        """Delete pages by their files, write changed pages, and delete a document's name, in one transaction."""
        pages = [(msgspec.structs.astuple(page), uses) for page, uses in changed]
        renewed = [(page[0],) for page, _ in pages]
        owned = [(page[0], document, count) for page, uses in pages for document, count in uses.items()]
        gone = [(number,) for number in removed]
        with self._transaction() as database:
            database.executemany("DELETE FROM pages WHERE number = ?", gone)
            database.executemany("DELETE FROM uses WHERE number = ?", [*gone, *renewed])
            database.executemany("REPLACE INTO pages VALUES (?, ?, ?, ?, ?, ?, ?)", [page for page, _ in pages])
            database.executemany("INSERT INTO uses VALUES (?, ?, ?)", owned)
            if forgotten is not None:
                database.execute("DELETE FROM uses WHERE document = ?", (forgotten,))

    def purge(self, document: str) -> list[int]:
        """Delete the document's name and the pages that only it used; returns the numbers of the files to remove."""
        with self._transaction() as database:
            gone = database.execute(_USED_BY_NO_OTHER, {"document": document, "token_bytes": TOKEN_BYTES}).fetchall()
            database.executemany("DELETE FROM pages WHERE number = ?", gone)
            database.executemany("DELETE FROM uses WHERE number = ?", gone)
            database.execute("DELETE FROM uses WHERE document = ?", (document,))
        return [number for (number,) in gone]

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
        if status.st_size > MAX_INDEX_BYTES:
            raise BadFileError(part, f"oversized: more than {MAX_INDEX_BYTES} bytes")

"""The SQLite file of an index: what the files of a workspace folder define and use; one process writes, others read."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import platformdirs

from lsp_server.context.proposals import FileStamp
from lsp_server.documents.documents import split_lines

if TYPE_CHECKING:
    from lsp_server.context.index.grammars import Definition

logger = logging.getLogger(__name__)

_VERSION = 4  # a file of another version is built anew
_UNUSED_S = 30 * 24 * 3600  # the index of a folder that was not opened for so long is deleted
_MOST_FOUND = 400  # rows of one look-up
_MOST_FILES_OF_NAME = 200
_FILES_PER_COMMIT = 300  # a commit waits for the disk
_CACHE_KIB = 64 * 1024  # names are in no order, so that a smaller cache reads and writes most pages again and again
_SCHEMA = f"""
    CREATE TABLE files (
        id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, changed INTEGER NOT NULL, size INTEGER NOT NULL,
        admission BLOB NOT NULL
    );
    CREATE TABLE definitions (
        file INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,
        name TEXT NOT NULL, container TEXT NOT NULL, shown TEXT NOT NULL, first INTEGER NOT NULL, lines TEXT NOT NULL
    );
    CREATE INDEX by_name ON definitions(name);
    CREATE INDEX by_file ON definitions(file);
    CREATE TABLE uses (
        name TEXT NOT NULL, file INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE, PRIMARY KEY (name, file)
    ) WITHOUT ROWID;
    CREATE INDEX uses_by_file ON uses(file);
    CREATE TABLE scans (finished REAL NOT NULL, cpu_s REAL NOT NULL, is_complete INTEGER NOT NULL);
    PRAGMA user_version = {_VERSION};
"""


class Indexed(NamedTuple):
    """The index's record of a file: its state when it was read, and by what it was admitted."""

    stamp: FileStamp
    admission: bytes


@dataclass(frozen=True, slots=True)
class LastScan:
    """The last scan of the whole folder: when it ended (seconds since the epoch), and what it cost."""

    finished: float
    cpu_s: float
    is_complete: bool  # False if a limit ended it


@dataclass(frozen=True, slots=True)
class IndexedDefinition:
    """A definition that a look-up found; `path` is its file's, in the workspace folder, with `/`."""

    path: str
    stamp: FileStamp
    name: str
    container: str
    shown: str
    first: int
    lines: tuple[str, ...]


def index_folder() -> Path:
    """The folder of the indexes of all workspace folders, in the user's cache folder."""
    return Path(platformdirs.user_cache_dir("midfill", appauthor=False)) / "index"


def index_file(folder: Path) -> Path:
    """The index of a workspace folder."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:24]
    return index_folder() / f"{digest}.sqlite"


class IndexWriter:
    """An index open for writing; its folder and file are the user's alone. What is deleted is overwritten."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        log = file.with_name(f"{file.name}-wal")
        is_unclean = log.exists() and log.stat().st_size > 0  # SQLite empties it when the last writer closes the file
        self._connection = sqlite3.connect(file)
        if not self._prepare(is_unclean=is_unclean):
            self._connection.close()
            remove_index(file)
            file.touch(mode=0o600)
            self._connection = sqlite3.connect(file)
            self._prepare(is_unclean=False)
        self._uncommitted = 0

    def _prepare(self, *, is_unclean: bool) -> bool:
        """Create the tables in an empty file; False if the file is damaged or of another version."""
        connection = self._connection
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            connection.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; "
                f"PRAGMA foreign_keys = ON; PRAGMA cache_size = -{_CACHE_KIB};"
            )
            if version == 0:
                connection.executescript(_SCHEMA)
            (sound,) = connection.execute("PRAGMA quick_check").fetchone() if is_unclean else ("ok",)
        except sqlite3.DatabaseError as error:
            logger.warning("the index is built anew: %s", error)
            return False
        return version in (0, _VERSION) and sound == "ok"

    def files(self, folder: str = "") -> dict[str, Indexed]:
        """The records of every file in the index, or of those below a folder (`src/`)."""
        after = folder[:-1] + chr(ord("/") + 1) if folder else "\U0010ffff"
        rows = self._connection.execute(
            "SELECT path, changed, size, admission FROM files WHERE path >= ? AND path < ?", (folder, after)
        )
        return {path: Indexed((changed, size), admission) for path, changed, size, admission in rows}

    def file(self, path: str) -> Indexed | None:
        """The record of one file."""
        row = self._connection.execute("SELECT changed, size, admission FROM files WHERE path = ?", (path,)).fetchone()
        return None if row is None else Indexed((row[0], row[1]), row[2])

    @property
    def size(self) -> int:
        """Bytes of the file."""
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int(pages * page_size)

    def put(self, path: str, indexed: Indexed, definitions: Iterable[Definition], used: Collection[str]) -> None:
        """Replace what is known of a file: its definitions, and the names that it uses."""
        connection = self._connection
        try:
            connection.execute("DELETE FROM files WHERE path = ?", (path,))
            row = connection.execute(
                "INSERT INTO files (path, changed, size, admission) VALUES (?, ?, ?, ?)",
                (path, *indexed.stamp, indexed.admission),
            )
            connection.executemany(
                "INSERT INTO definitions VALUES (?, ?, ?, ?, ?, ?)",
                ((row.lastrowid, each.name, each.container, each.shown, each.first, "".join(each.lines)) for each in definitions),
            )
            connection.executemany("INSERT INTO uses VALUES (?, ?)", ((name, row.lastrowid) for name in set(used)))
        except BaseException:
            connection.rollback()  # half a file is never kept
            raise
        self._uncommitted += 1
        if self._uncommitted >= _FILES_PER_COMMIT:
            self.commit()

    def admit(self, path: str, admission: bytes) -> None:
        """Keep what is known of a file that is admitted again."""
        self._connection.execute("UPDATE files SET admission = ? WHERE path = ?", (admission, path))

    def remove(self, paths: Iterable[str]) -> None:
        self._connection.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in paths))

    def last_scan(self) -> LastScan | None:
        """The last scan of the whole folder; None if there was none."""
        row = self._connection.execute("SELECT finished, cpu_s, is_complete FROM scans").fetchone()
        return None if row is None else LastScan(row[0], row[1], bool(row[2]))

    def scanned(self, last: LastScan) -> None:
        """Remember a scan of the whole folder."""
        self._connection.execute("DELETE FROM scans")
        self._connection.execute("INSERT INTO scans VALUES (?, ?, ?)", (last.finished, last.cpu_s, last.is_complete))

    def commit(self) -> None:
        """Let readers see what was written."""
        self._connection.commit()
        self._uncommitted = 0

    def close(self) -> None:
        """Commit and close the file."""
        self._connection.commit()
        self._connection.close()


def remove_index(file: Path) -> None:
    """Delete an index with what SQLite keeps beside it."""
    for each in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        each.unlink(missing_ok=True)


def look_up(file: Path, names: Iterable[str]) -> Iterator[IndexedDefinition]:
    """The definitions with one of these names; none if there is no index yet, or if it cannot be read."""
    wanted = list(dict.fromkeys(names))[:_MOST_FOUND]
    if not wanted or not file.is_file():
        return
    query = (
        "SELECT path, changed, size, name, container, shown, first, lines FROM definitions JOIN files ON id = file "
        f"WHERE name IN ({','.join('?' * len(wanted))}) LIMIT {_MOST_FOUND}"
    )
    for path, changed, size, name, container, shown, first, lines in _rows(file, query, [wanted]):
        held = split_lines(lines)
        yield IndexedDefinition(path, (changed, size), name, container, shown, first, tuple(held if held[-1] else held[:-1]))


def files_using(file: Path, names: Iterable[str]) -> list[tuple[str, str]]:
    """Each name with the paths of files that use it, at most so many of each; none if the index cannot be read."""
    query = f"SELECT name, path FROM uses JOIN files ON id = file WHERE name = ? LIMIT {_MOST_FILES_OF_NAME}"
    return _rows(file, query, [[name] for name in names]) if file.is_file() else []


def _rows(file: Path, query: str, several: Iterable[Sequence[str]]) -> list[Any]:
    """The rows of a query for each of several parameters."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=0.2)) as connection:
            return [row for parameters in several for row in connection.execute(query, parameters)]
    except sqlite3.Error as error:
        logger.info("%s cannot be read: %s", file, error)
        return []


def remove_unused() -> None:
    """Delete the indexes of folders that were not opened for a month."""
    oldest = time.time() - _UNUSED_S
    for file in index_folder().glob("*.sqlite*"):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()

"""Stores the disk tier's payloads: a folder per model, with a file per page and their index.

A page is refused unless its file is exactly as written (size, checksum, tensor shape), and an unusable folder is set
aside. `kv_store/tiers.py` budgets a page by its size in memory. KV is derived from the user's text, so only the user
can access files and folders.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kv_store.disk_folders import (
    INDEX_NAME,
    OUR_NAME,
    PAGE_NAME,
    PageIndex,
    SavedSnapshot,
    index_files,
    open_folder,
    our_files,
    page_name,
    remove_file,
    set_aside,
)
from kv_store.interface import BadFileError

if TYPE_CHECKING:
    from kv_store.main_memory import ArrayCodec
    from kv_store.workspace import StateCodec  # which imports torch

FORMAT = "midfill kv 7"  # also a new number where arithmetic changes that no fingerprint has, as how vectors are read
MIN_FREE_BYTES = 512 * 2**20
"""Free disk space left to other programs: no page is written below it."""

_NO_SURPRISES = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PageFile:
    """The file of one saved page, or of a snapshot, which has no tokens."""

    number: int
    """In its name."""
    count: int
    """Tokens."""
    size: int
    """Bytes of the whole file."""
    sha256: bytes

    @property
    def name(self) -> str:
        return page_name(self.number)


class PageFolder:
    """Implements `Storage` in `root/<hash of the fingerprint>`.

    The fingerprint identifies all that KV depends on: weights, tokenizer, RoPE settings, arithmetic. An unusable folder
    is set aside, with the reason in `refused`. Raises FolderInUseError if another process uses the folder, and OSError
    if it cannot be created.
    """

    page_overhead = 256
    durable = True

    def __init__(self, root: Path, fingerprint: str, codec: ArrayCodec, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self.root = root
        self._codec = codec
        self._min_free_bytes = min_free_bytes
        self.removed: list[int] = []
        """Numbers of removed files that are still in the index."""
        self.added: list[SavedSnapshot] = []
        """Rows of snapshots that are not in the index yet."""
        self.snapshots: set[str] = set()
        """The names of the files that are snapshots'."""
        self.index_is_behind = False
        """Whether the last write to the index failed."""
        self.folder = root / hashlib.sha256(f"{FORMAT}\n{fingerprint}".encode()).hexdigest()[:16]
        self.refused: list[str] = []
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock, self.index = open_folder(self.folder)
        except (BadFileError, OSError) as error:
            self.refused.append(f"{error}; the folder is set aside")
            set_aside(self.folder)
            self._lock, self.index = open_folder(self.folder)
        self._next = 1 + max((int(path.stem, 16) for path in our_files(self.folder, PAGE_NAME)), default=0)

    # -- pages ---------------------------------------------------------------------------------------------------------

    def put(self, payload: object, count: int) -> PageFile:
        data = self._codec.encode(payload, count)
        assert len(data) <= self._max_bytes(count), f"a file of {len(data)} bytes for {count} tokens"
        return self.write(data, count)

    def get(self, stored: object) -> object:
        return self.read(stored, lambda data, count: self._codec.decode(data, count))

    def write(self, data: bytes, count: int) -> PageFile:
        """Write a new file. Raises OSError if that fails, or would fill the disk."""
        if shutil.disk_usage(self.folder).free < self._min_free_bytes:
            reason = f"less than {self._min_free_bytes / 2**20:.0f} MB are free"
            raise OSError(errno.ENOSPC, reason, str(self.folder))
        file = PageFile(self._next, count, len(data), hashlib.sha256(data).digest())
        self._next += 1
        _write_private(self.folder / file.name, data)
        return file

    def read(self, stored: object, decode: Callable[[bytes, int], object]) -> object:
        """What `decode` makes of a file's bytes and tokens; BadFileError if they are not those that were written."""
        assert isinstance(stored, PageFile), f"{stored!r} is no saved page"
        path = self.folder / stored.name
        data = _read_regular(path, stored.size + 1)
        if len(data) != stored.size:
            raise BadFileError(path, f"truncated or oversized: not the {stored.size} bytes that were saved")
        if hashlib.sha256(data).digest() != stored.sha256:
            raise BadFileError(path, "corrupt: its checksum differs")
        try:
            return decode(data, stored.count)
        except ValueError as error:
            raise BadFileError(path, str(error)) from error

    def remove(self, stored: object) -> None:
        assert isinstance(stored, PageFile), f"{stored!r} is no saved page"
        self.removed.append(stored.number)
        remove_file(self.folder / stored.name)

    def close(self) -> None:
        self.index.close()
        self._lock.release()

    # -- across restarts -----------------------------------------------------------------------------------------------

    def replace_index(self) -> None:
        """Begin with an empty index. Raises OSError or BadFileError if it cannot be created."""
        self.index.close()
        for path in index_files(self.folder):
            path.unlink(missing_ok=True)
        self.index = PageIndex(self.folder / INDEX_NAME)

    def go_on_after(self, number: int) -> None:
        """Give no new file this number, which the index knows, or a lower one."""
        self._next = max(self._next, number + 1)

    def check_file(self, file: PageFile) -> None:
        """Check a saved page without reading it. Raises BadFileError if its size is wrong."""
        path = self.folder / file.name
        self.check_size(file)
        if not self._codec.bytes_per_token * file.count <= file.size <= self._max_bytes(file.count):
            raise BadFileError(path, f"oversized or of another model: {file.size} bytes for {file.count} tokens")

    def check_size(self, file: PageFile) -> None:
        """Raises BadFileError if a file has not the size that was written."""
        path = self.folder / file.name
        try:
            status = path.lstat()
        except OSError as error:
            raise BadFileError(path, f"cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise BadFileError(path, "not a regular file")
        if status.st_size != file.size:
            raise BadFileError(path, f"truncated or oversized: {status.st_size} bytes instead of {file.size}")

    def remove_other_files(self, files: Iterable[PageFile]) -> None:
        """Remove files without a page: left by a crash, or refused."""
        kept = {file.name for file in files}
        kept.update(path.name for path in index_files(self.folder))
        for path in our_files(self.folder, OUR_NAME):
            if path.name not in kept:
                remove_file(path)

    def _max_bytes(self, count: int) -> int:
        return self._codec.bytes_per_token * count + self.page_overhead


class SnapshotFiles:
    """Implements `Storage` for snapshots of recurrent layers, as further files in a folder of pages."""

    durable = True

    def __init__(self, folder: PageFolder, codec: StateCodec) -> None:
        self.folder = folder
        self.page_overhead = codec.overhead
        self._codec = codec

    def put(self, payload: object, count: int) -> PageFile:
        file = self.folder.write(self._codec.encode(payload), count)
        self.folder.snapshots.add(file.name)
        return file

    def get(self, stored: object) -> object:
        return self.folder.read(stored, lambda data, _count: self._codec.decode(data))

    def remove(self, stored: object) -> None:
        assert isinstance(stored, PageFile), f"{stored!r} is no saved snapshot"
        self.folder.remove(stored)
        self.folder.snapshots.discard(stored.name)
        self.folder.added = [row for row in self.folder.added if row.number != stored.number]

    def close(self) -> None:
        """Does nothing: the folder closes itself."""


def _read_regular(path: Path, at_most: int) -> bytes:
    """The first bytes of a regular file. Raises BadFileError if it is not one or cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_SURPRISES), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise BadFileError(path, "not a regular file")
            return stream.read(at_most)
    except OSError as error:
        raise BadFileError(path, f"cannot be read: {error.strerror}") from error


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that only the user can read, completely or not at all.

    It is not synced to the disk: the checksum detects what a power failure truncated.
    """
    partial = path.with_suffix(".tmp")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_SURPRISES, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise

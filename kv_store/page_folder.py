"""Where the disk tier keeps payloads: a folder per model with a file per page and an index for the next start.

Whatever is found there is refused unless it is exactly what was written: a file's size, checksum and tensor shape,
the index's checksum and fingerprint. KV is derived from the user's text: files and folders are the user's alone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from kv_store.errors import BadFileError, FolderInUseError
from kv_store.folder_lock import LOCK_NAME, FolderLock
from kv_store.index_file import PAGE_NAME, PageFile, SavedPage, decode_index, encode_index

INDEX_NAME = "index.json"
MAX_INDEX_BYTES = 256 * 2**20
PARTIAL_NAME = re.compile(r"([0-9a-f]{8}|index)\.tmp")
FOLDER_NAME = re.compile(r"[0-9a-f]{16}")

log = logging.getLogger(__name__)


class Codec(Protocol):
    """Payloads as bytes."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token."""
        ...

    def encode(self, payload: object, count: int) -> bytes:
        """The bytes of a file with the KV of `count` tokens."""
        ...

    def decode(self, data: bytes, count: int) -> object:
        """The payload. Raises ValueError unless `data` holds exactly `count` tokens of this model's KV."""
        ...


class PageFolder:
    """Implements `Storage` in `root/<hash of the fingerprint>`; raises FolderInUseError if another process is there.

    The fingerprint stands for all that KV depends on: weights, tokenizer, dtype, RoPE settings.
    """

    page_overhead = 256
    durable = True

    def __init__(self, root: Path, fingerprint: str, codec: Codec) -> None:
        self._root = root
        self._fingerprint = fingerprint
        self._codec = codec
        self.folder = root / hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
        for folder in (root, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._lock = FolderLock(self.folder)
        names = [path.stem for path in self.folder.iterdir() if PAGE_NAME.fullmatch(path.name)]
        self._next = 1 + max((int(name, 16) for name in names), default=0)

    # -- pages ---------------------------------------------------------------------------------------------------------

    def put(self, payload: object, count: int) -> PageFile:
        data = self._codec.encode(payload, count)
        assert len(data) <= self._max_bytes(count), f"a file of {len(data)} bytes for {count} tokens"
        file = PageFile(f"{self._next:08x}.safetensors", count, len(data), hashlib.sha256(data).hexdigest())
        self._next += 1
        _write_private(self.folder / file.name, data)
        return file

    def get(self, stored: object) -> object:
        assert isinstance(stored, PageFile), f"{stored!r} is no saved page"
        path = self.folder / stored.name
        try:
            with path.open("rb") as stream:
                data = stream.read(stored.size + 1)
        except OSError as error:
            raise BadFileError(path, f"cannot be read: {error.strerror}") from error
        if len(data) != stored.size:
            raise BadFileError(path, f"truncated or oversized: not the {stored.size} bytes that were saved")
        if hashlib.sha256(data).hexdigest() != stored.sha256:
            raise BadFileError(path, "corrupt: its checksum differs")
        try:
            return self._codec.decode(data, stored.count)
        except ValueError as error:
            raise BadFileError(path, str(error)) from error

    def remove(self, stored: object) -> None:
        assert isinstance(stored, PageFile), f"{stored!r} is no saved page"
        (self.folder / stored.name).unlink(missing_ok=True)

    def check(self, stored: Collection[object]) -> None:
        files = {file.name for file in stored if isinstance(file, PageFile)}
        assert len(files) == len(stored), f"{self.folder}: not every copy has a file of its own"
        found = {path.name for path in _page_files(self.folder)}
        assert found <= files, f"{self.folder}: files of no page: {sorted(found - files)}"

    def close(self) -> None:
        self._lock.release()

    # -- across restarts -----------------------------------------------------------------------------------------------

    @property
    def has_index(self) -> bool:
        """Whether a restart would find something."""
        return (self.folder / INDEX_NAME).exists()

    def write_index(self, pages: Sequence[SavedPage]) -> None:
        """Replace the index, at once or not at all. Raises OSError where it cannot be written."""
        _write_private(self.folder / INDEX_NAME, encode_index(self._fingerprint, pages))

    def read_index(self) -> list[SavedPage]:
        """What was saved for this model. Raises BadFileError where it must not be used."""
        path = self.folder / INDEX_NAME
        if not path.exists():
            return []
        if path.stat().st_size > MAX_INDEX_BYTES:
            raise BadFileError(path, f"oversized: more than {MAX_INDEX_BYTES} bytes")
        try:
            return decode_index(path.read_bytes(), self._fingerprint)
        except (ValueError, TypeError, KeyError) as error:
            raise BadFileError(path, str(error)) from error

    def remove_index(self) -> None:
        """Have a restart find nothing."""
        (self.folder / INDEX_NAME).unlink(missing_ok=True)

    def check_file(self, file: PageFile) -> None:
        """Look at a saved page without reading it. Raises BadFileError where its size cannot be right."""
        path = self.folder / file.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise BadFileError(path, f"cannot be read: {error.strerror}") from error
        if size != file.size:
            raise BadFileError(path, f"truncated or oversized: {size} bytes instead of {file.size}")
        if not self._codec.bytes_per_token * file.count <= size <= self._max_bytes(file.count):
            raise BadFileError(path, f"oversized or of another model: {size} bytes for {file.count} tokens")

    def remove_other_files(self, files: Iterable[PageFile]) -> None:
        """Remove what no page refers to: left over from a crash, or refused."""
        kept = {file.name for file in files}
        for path in _page_files(self.folder):
            if path.name not in kept:
                path.unlink()

    def remove_other_models(self) -> list[str]:
        """Remove what was saved with other fingerprints, unless in use; the reasons, naming the folders.

        Nobody else would: a purge must reach every page, and the budget is for all that is on disk.
        """
        removed = []
        for folder in self._root.iterdir():
            if folder != self.folder and FOLDER_NAME.fullmatch(folder.name) and (folder / LOCK_NAME).exists():
                try:
                    lock = FolderLock(folder)
                except FolderInUseError as error:
                    log.info("left alone: %s", error)
                    continue
                _remove_folder(folder, lock)
                removed.append(f"{folder / INDEX_NAME}: saved with other weights, tokenizer, dtype or RoPE settings")
        return removed

    def _max_bytes(self, count: int) -> int:
        return self._codec.bytes_per_token * count + self.page_overhead


def _page_files(folder: Path) -> list[Path]:
    """Pages, and whatever was not written to its end."""
    return [path for path in folder.iterdir() if PAGE_NAME.fullmatch(path.name) or PARTIAL_NAME.fullmatch(path.name)]


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that only the user can read, whole or not at all.

    It is not synced to the disk: what a power failure leaves is found out by its checksum.
    """
    partial = path.with_suffix(".tmp")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _remove_folder(folder: Path, lock: FolderLock) -> None:
    """Remove our own files, and the folder if nothing else is in it."""
    for path in [*_page_files(folder), folder / INDEX_NAME]:
        path.unlink(missing_ok=True)
    lock.release()
    (folder / LOCK_NAME).unlink()
    if not any(folder.iterdir()):
        folder.rmdir()

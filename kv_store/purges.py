"""The journal of purges in the cache's folder: what each core must forget of what another was asked to forget.

An entry is an empty file, named by its time and a digest of the document's name. A running core reads the entries that
are new; what no process has open is purged by whoever writes the entry; and a core that opens a folder, which another
may have left before it had read them, applies those of the last hour.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

FOLDER_NAME = "purges"
ENTRY_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{32})")
KEPT_S = 3600.0
MOST_ENTRIES = 4096
"""More are removed, the oldest first: without this, who forgets made-up documents for an hour fills the folder."""

_NS = 10**9


def digest(document: str) -> str:
    """The digest of a document's name in an entry."""
    return blake2b(document.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def purged(root: Path) -> frozenset[str]:
    """The digests of all entries."""
    return frozenset(map(_digest_in, _entries(root)))


def remove_old_entries(root: Path) -> None:
    """Remove entries older than KEPT_S; for a process that has purged all folders that no other has open."""
    for name in _entries(root):
        if int(name[:16], 16) < time.time_ns() - KEPT_S * _NS:
            with suppress(OSError):
                (root / FOLDER_NAME / name).unlink(missing_ok=True)


class PurgeJournal:
    """A running core's view of the journal; `add` and `news` may be called by different threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known = set(_entries(root))

    def add(self, document: str) -> None:
        """Tell all other cores to forget a document. Raises OSError if that is impossible."""
        name = f"{time.time_ns():016x}-{digest(document)}"
        self._known.add(name)
        folder = self._root / FOLDER_NAME
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600))
        if len(self._known) > MOST_ENTRIES * 5 // 4:  # to list them now and then suffices
            names = sorted(_entries(self._root))
            for old in names[:-MOST_ENTRIES]:
                (folder / old).unlink(missing_ok=True)
            self._known &= set(names[-MOST_ENTRIES:])

    def news(self) -> frozenset[str]:
        """The digests of the documents that other cores were asked to forget since the last call."""
        entries = set(_entries(self._root))
        new = entries - self._known
        self._known |= new
        if len(self._known) > MOST_ENTRIES * 5 // 4:
            self._known &= entries
        return frozenset(map(_digest_in, new))


def _entries(root: Path) -> list[str]:
    try:
        return list(filter(ENTRY_NAME.fullmatch, os.listdir(root / FOLDER_NAME)))  # noqa: PTH208 - much faster
    except OSError:  # nothing was ever purged, or the disk is gone, and with it what is saved there
        return []


def _digest_in(name: str) -> str:
    return name[-32:]

"""Reads from git's index, in its versions 2 to 4, which files a repository tracks: git ignores none of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePosixPath

MOST_BYTES = 1 << 24  # about 150,000 files, which take about 0.2 s

_HEADER = struct.Struct(">4sII")
_EXTENSION = struct.Struct(">4sI")
_STATUS_BYTES = 40  # times, device, inode, mode, owner and size, before the hash of the content
_HASH_BYTES = (20, 32)  # SHA-1, SHA-256; the file does not say which
_LENGTH = 0xFFF  # the bits of an entry's flags for the length of its name; all of them for a longer name
_IS_EXTENDED = 0x4000  # further flags follow


class BadIndex(ValueError):
    """Not an index that midfill can read; the message says why."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """The paths of the tracked files below a repository's root, with `/`, and of the folders that hold them."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    @classmethod
    def of_paths(cls, paths: frozenset[str]) -> Tracked:
        """The tracked files of these paths, with their folders."""
        parents = {path.rpartition("/")[0] for path in paths}
        return cls(paths, frozenset(folder for parent in parents for folder in _with_outer(parent)))


def read_index(data: bytes) -> Tracked:
    """The paths tracked by the file; BadIndex if it is too long, damaged, split into two files or of another version.

    Of a sparse index, the folders that are not checked out are paths, with a `/` at their end.
    """
    if len(data) > MOST_BYTES:
        raise BadIndex(f"it is longer than {MOST_BYTES} bytes")
    for hash_bytes in _HASH_BYTES:
        try:
            return Tracked.of_paths(frozenset(_paths(data, hash_bytes)))
        except (IndexError, ValueError, struct.error) as error:
            problem = error
    raise BadIndex(str(problem)) from problem


def _with_outer(folder: str) -> list[str]:
    return list(accumulate(PurePosixPath(folder).parts, "{}/{}".format))


def _paths(data: bytes, hash_bytes: int) -> list[str]:
    magic, version, count = _HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise BadIndex(f"it begins with {data[:8]!r}")
    paths: list[str] = []
    place, name = _HEADER.size, b""
    for _ in range(count):
        start = place
        place += _STATUS_BYTES + hash_bytes
        flags = data[place] << 8 | data[place + 1]
        place += 4 if flags & _IS_EXTENDED else 2
        kept = b""
        if version == 4:  # a name is written as what differs from the end of the one before
            dropped, place = _number(data, place)
            if dropped > len(name):
                raise BadIndex(f"entry {len(paths)} drops {dropped} of {len(name)} bytes")
            kept = name[: len(name) - dropped]
        end = data.index(b"\0", place)
        name = kept + data[place:end]
        if not name or min(len(name), _LENGTH) != flags & _LENGTH:
            raise BadIndex(f"the name of entry {len(paths)} has {len(name)} bytes instead of {flags & _LENGTH}")
        paths.append(name.decode("utf-8", "surrogateescape"))
        place = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
    _check_extensions(data, place, len(data) - hash_bytes)
    return paths


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A number of 7 bits per byte, the highest first, each further byte adding one; and the place behind it."""
    value = data[place] & 0x7F
    while data[place] & 0x80:
        place += 1
        value = (value + 1) << 7 | data[place] & 0x7F
        if value > len(data):
            raise BadIndex(f"a name drops {value} bytes")
    return value, place + 1


def _check_extensions(data: bytes, place: int, end: int) -> None:
    """BadIndex if an extension says that the entries are not all."""
    while place < end:
        name, size = _EXTENSION.unpack_from(data, place)
        if name == b"link":
            raise BadIndex("it is split: most of its entries stand in another file")
        place += _EXTENSION.size + size
    if place != end:
        raise BadIndex(f"it has {len(data)} bytes, but its parts end at {place}")

"""Packs a folder into parts that fit through transfers of limited size, and back: a tar archive, cut and checked."""

import hashlib
import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Literal, Self, cast

import msgspec
from msgspec import Meta, Struct

from midfill_lab.training.options import TransferError

PART_BYTES = 16 * 2**20
INDEX = "index.json"

_Count = Annotated[int, Meta(ge=0)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A file with some bytes of the archive, which go on in the next one."""

    name: Annotated[str, Meta(pattern=r"^part-\d{3,}\Z")]
    bytes: _Count
    sha256: _Digest


class Index(Struct, frozen=True, forbid_unknown_fields=True):
    """What a packed folder consists of: the number of its files and of their bytes, and the parts."""

    format: Literal[2]
    files: _Count
    bytes: _Count
    parts: tuple[Part, ...]


def pack(source: Path, target: Path, part_bytes: int = PART_BYTES, *, compress: bool = True) -> Index:
    """Pack the files of the folder `source` into parts of at most `part_bytes` in `target`, which must be empty.

    The index, `index.json`, is written last: parts beside it are complete. Compressing takes a second for some MB.

    Raises TransferError if the source is no folder, or the target not empty.
    """
    if not source.is_dir():
        raise TransferError(f"{source} is not a folder")
    if target.exists() and any(target.iterdir()):
        raise TransferError(f"{target} is not empty")
    target.mkdir(parents=True, exist_ok=True)
    paths = sorted(path for path in source.rglob("*") if path.is_file() and target not in path.parents)
    with _PartWriter(target, part_bytes) as parts, _archive(parts, compress=compress) as archive:
        for path in paths:
            archive.add(path, path.relative_to(source).as_posix(), recursive=False)
    index = Index(2, len(paths), sum(path.stat().st_size for path in paths), tuple(parts.written))
    partial = target / f".{INDEX}"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(index), indent=1))
    partial.replace(target / INDEX)
    return index


def unpack(source: Path, target: Path) -> Index:
    """Restore the folder that was packed into `source`, once all parts are found to be whole.

    Raises TransferError if a part or the index is missing or damaged, or the archive names a place outside of `target`.
    """
    try:
        index = msgspec.json.decode((source / INDEX).read_bytes(), type=Index)
    except (OSError, msgspec.MsgspecError) as error:
        raise TransferError(f"{source} has no usable {INDEX}: {error}") from error
    for part in index.parts:
        _check(source / part.name, part)
    target.mkdir(parents=True, exist_ok=True)
    files = size = 0
    joined = io.BufferedReader(_Joined(source / part.name for part in index.parts))
    try:
        with tarfile.open(fileobj=joined, mode="r|*") as archive:
            for member in archive:
                archive.extract(member, target, filter="data")
                files, size = files + member.isfile(), size + member.size
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise TransferError(f"{source} is damaged: {error}") from error
    if (files, size) != (index.files, index.bytes):
        raise TransferError(f"{source} is damaged: {files} files with {size} bytes, of {index.files} with {index.bytes}")
    return index


def _check(path: Path, part: Part) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TransferError(f"the part {path} cannot be read: {error.strerror}") from error
    if (len(content), hashlib.sha256(content).hexdigest()) != (part.bytes, part.sha256):
        raise TransferError(f"the part {path} is damaged: it has {len(content)} bytes, of {part.bytes}, or others")


def _archive(parts: "_PartWriter", *, compress: bool) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("IO[bytes]", parts), mode="w|xz" if compress else "w|")


class _PartWriter:
    """Writes bytes to part after part."""

    def __init__(self, folder: Path, part_bytes: int) -> None:
        self._folder, self._room = folder, part_bytes
        self._pending = bytearray()
        self.written: list[Part] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._pending:
            self._end_part(len(self._pending))

    def write(self, content: bytes) -> int:
        self._pending += content
        while len(self._pending) >= self._room:
            self._end_part(self._room)
        return len(content)

    def _end_part(self, size: int) -> None:
        content, name = bytes(self._pending[:size]), f"part-{len(self.written):03d}"
        del self._pending[:size]
        (self._folder / name).write_bytes(content)
        self.written.append(Part(name, size, hashlib.sha256(content).hexdigest()))


class _Joined(io.RawIOBase):
    """The bytes of files, one after another."""

    def __init__(self, paths: Iterator[Path]) -> None:
        self._paths, self._ready = paths, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready and (path := next(self._paths, None)) is not None:
            self._ready = memoryview(path.read_bytes())
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

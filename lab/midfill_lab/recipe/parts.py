"""Packs a folder into parts that fit through transfers of limited size, and back: each file the same, byte for byte.

Weights are split into byte planes: the bytes with signs and exponents are a third as large when they are compressed
apart from those of the mantissas, which are noise. All else, such as a corpus, is compressed as text.
"""

import hashlib
import json
import lzma
import os
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from midfill_lab.training.options import TransferError

PART_BYTES = 16 * 2**20
BLOCK_BYTES = 32 * 2**20
"""Bytes that are compressed at a time: text of many files in common, but not more than all cores can work at."""
WORKERS = 4
INDEX = "index.json"
_LEAST_GAIN = 0.98  # of a block's size; what gains less is stored as it is
_SAMPLE_BYTES = 2**16
_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "BF16": 16, "F16": 16, "I16": 16, "U16": 16}
_MAX_HEADER_BYTES = 10**8
_LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": BLOCK_BYTES}]

Coder = Literal["stored", "huffman", "lzma"]
_Encoded = tuple[int, bytes, Coder]  # the size of a block, its bytes in the parts, and what made them
_Count = Annotated[int, Meta(ge=0)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Block(Struct, frozen=True, forbid_unknown_fields=True):
    """Consecutive bytes of a plane: how many, how many they are in the parts, and what made those."""

    bytes: _Count
    packed: _Count
    coder: Coder


class Region(Struct, frozen=True, forbid_unknown_fields=True):
    """Consecutive bytes of a file, as `width` planes: byte `i` of each value is in plane `i`."""

    bytes: _Count
    width: Annotated[int, Meta(ge=1, le=8)]
    blocks: tuple[Block, ...]


class PackedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the folder, by its path below it."""

    path: str
    bytes: _Count
    sha256: _Digest
    regions: tuple[Region, ...]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A file with a part of all blocks, one after another."""

    name: Annotated[str, Meta(pattern=r"^part-\d{3,}\Z")]
    bytes: _Count
    sha256: _Digest


class Index(Struct, frozen=True, forbid_unknown_fields=True):
    """What a packed folder consists of."""

    format: Literal[1]
    parts: tuple[Part, ...]
    files: tuple[PackedFile, ...]


def pack(source: Path, target: Path, part_bytes: int = PART_BYTES) -> Index:
    """Pack the files of the folder `source` into parts of at most `part_bytes` in `target`, which must be empty.

    The index, `index.json`, is written last: parts beside it are complete.

    Raises:
        TransferError: the source is no folder, or the target is not empty.
    """
    if not source.is_dir():
        raise TransferError(f"{source} is not a folder")
    if target.exists() and any(target.iterdir()):
        raise TransferError(f"{target} is not empty")
    target.mkdir(parents=True, exist_ok=True)
    paths = sorted(path for path in source.rglob("*") if path.is_file() and target not in path.parents)
    files: list[PackedFile] = []
    with _PartWriter(target, part_bytes) as parts, ThreadPoolExecutor(WORKERS) as pool:
        for path in paths:
            content = _mapped(path)
            regions: list[Region] = []
            start = 0
            for size, width in _regions(content):
                blocks = _compressed(content[start : start + size], width, pool)
                regions.append(Region(size, width, tuple(_written(blocks, parts))))
                start += size
            digest = hashlib.sha256(content.data).hexdigest()
            files.append(PackedFile(path.relative_to(source).as_posix(), len(content), digest, tuple(regions)))
    index = Index(1, tuple(parts.written), tuple(files))
    partial = target / f".{INDEX}"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(index), indent=1))
    partial.replace(target / INDEX)
    return index


def read_index(folder: Path) -> Index:
    """The index of packed files.

    Raises:
        TransferError: it is missing or damaged, or names a file outside of the folder to unpack into.
    """
    try:
        index = msgspec.json.decode((folder / INDEX).read_bytes(), type=Index)
    except (OSError, msgspec.MsgspecError) as error:
        raise TransferError(f"{folder} has no usable {INDEX}: {error}") from error
    for file in index.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or not path.parts or ".." in path.parts or set(file.path) & set("\0\\:"):
            raise TransferError(f"{folder / INDEX} names the file {file.path!r}, which is not below the folder")
        if sum(region.bytes for region in file.regions) != file.bytes:
            raise TransferError(f"{folder / INDEX}: the regions of {file.path} are not its {file.bytes} bytes")
        for region in file.regions:
            if sum(block.bytes for block in region.blocks) != region.bytes or region.bytes % region.width:
                raise TransferError(f"{folder / INDEX}: the blocks of {file.path} are not those of its regions")
            if max((block.bytes for block in region.blocks), default=0) > BLOCK_BYTES:
                raise TransferError(f"{folder / INDEX}: a block of {file.path} has more than {BLOCK_BYTES} bytes")
    if len({file.path for file in index.files}) < len(index.files):
        raise TransferError(f"{folder / INDEX} names a file twice")
    packed = sum(block.packed for file in index.files for region in file.regions for block in region.blocks)
    if packed != sum(part.bytes for part in index.parts):
        raise TransferError(f"{folder / INDEX}: its blocks have {packed} bytes, and its parts others")
    return index


def unpack(source: Path, target: Path) -> Index:
    """Restore the folder that was packed into `source`; each file appears in `target` when it is whole and checked.

    Raises:
        TransferError: a part or the index is missing or damaged.
    """
    index = read_index(source)
    for part in index.parts:
        _check(source / part.name, part)
    stream = _PartReader(source, index)
    with ThreadPoolExecutor(WORKERS) as pool:
        for file in index.files:
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.partial")
            digest = hashlib.sha256()
            with partial.open("wb") as output:
                for region in file.regions:
                    content = _restored(region, stream, pool, f"{source}: {file.path}")
                    digest.update(content.data)
                    output.write(content.data)
            if digest.hexdigest() != file.sha256:
                partial.unlink()
                raise TransferError(f"{source}: the content of {file.path} is damaged")
            partial.replace(path)
    return index


def _mapped(path: Path) -> NDArray[np.uint8]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))


def _regions(content: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """The sizes and widths of a file's regions: in safetensors' format the header and each tensor, else one."""
    header_bytes = 8 + int.from_bytes(content[:8].tobytes(), "little")
    plain = [(len(content), 1)]
    if not 8 < header_bytes <= min(len(content), _MAX_HEADER_BYTES):
        return plain
    try:
        header = json.loads(content[8:header_bytes].tobytes())
        header.pop("__metadata__", None)
        tensors = [(*map(int, one["data_offsets"]), _BITS.get(one["dtype"], 8) // 8) for one in header.values()]
        regions = [(stop - start, width) for start, stop, width in sorted(tensors)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return plain
    is_whole = sum(size for size, _ in regions) == len(content) - header_bytes
    fits = all(size >= 0 and size % width == 0 for size, width in regions)
    return [(header_bytes, 1), *regions] if is_whole and fits else plain


def _compressed(content: NDArray[np.uint8], width: int, pool: ThreadPoolExecutor) -> Iterator[_Encoded]:
    """The blocks of a region, compressed by several threads, in order; few are in memory at a time."""
    planes = content.reshape(-1, width)
    pending: deque[Future[_Encoded]] = deque()
    for plane in range(width):
        for start in range(0, len(planes), BLOCK_BYTES):
            block = planes[start : start + BLOCK_BYTES, plane].tobytes()
            pending.append(pool.submit(_encode, block, width > 1))
            if len(pending) > WORKERS:
                yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _encode(block: bytes, is_plane: bool) -> _Encoded:
    encode = _huffman if is_plane else _lzma
    if len(_huffman(block[:_SAMPLE_BYTES])) < _LEAST_GAIN * len(block[:_SAMPLE_BYTES]):
        packed = encode(block)
        if len(packed) < _LEAST_GAIN * len(block):
            return len(block), packed, "huffman" if is_plane else "lzma"
    return len(block), block, "stored"


def _huffman(block: bytes) -> bytes:
    """Each byte by its frequency alone: of weights, no sequence repeats, and the search for any only costs time."""
    coder = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(block) + coder.flush()


def _lzma(block: bytes) -> bytes:
    return lzma.compress(block, lzma.FORMAT_XZ, filters=_LZMA)


def _written(blocks: Iterator[_Encoded], parts: "_PartWriter") -> Iterator[Block]:
    for size, packed, coder in blocks:
        parts.write(packed)
        yield Block(size, len(packed), coder)


def _restored(region: Region, stream: "_PartReader", pool: ThreadPoolExecutor, where: str) -> NDArray[np.uint8]:
    """The bytes of a region."""
    planes = np.empty((region.width, region.bytes // region.width), dtype=np.uint8)
    flat, start = planes.reshape(-1), 0
    pending: deque[tuple[int, int, Future[bytes]]] = deque()

    def place() -> None:
        begin, size, decoded = pending.popleft()
        flat[begin : begin + size] = np.frombuffer(decoded.result(), dtype=np.uint8)

    for block in region.blocks:
        pending.append((start, block.bytes, pool.submit(_decode, stream.read(block.packed), block, where)))
        start += block.bytes
        if len(pending) > WORKERS:
            place()
    while pending:
        place()
    return np.ascontiguousarray(planes.T).reshape(-1)


def _decode(packed: bytes, block: Block, where: str) -> bytes:
    """The plain bytes of a block, and never more than it has."""
    try:
        if block.coder == "stored":
            plain = packed
        elif block.coder == "huffman":
            plain = zlib.decompressobj().decompress(packed, block.bytes + 1)
        else:
            plain = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed, block.bytes + 1)
    except (zlib.error, lzma.LZMAError) as error:
        raise TransferError(f"{where} is damaged: {error}") from error
    if len(plain) != block.bytes:
        raise TransferError(f"{where} is damaged: a block of {block.bytes} bytes has others")
    return plain


def _check(path: Path, part: Part) -> None:
    try:
        with path.open("rb") as file:
            size, digest = os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TransferError(f"the part {path} cannot be read: {error.strerror}") from error
    if (size, digest) != (part.bytes, part.sha256):
        raise TransferError(f"the part {path} is damaged: it has {size} bytes, of {part.bytes}, or others")


class _PartWriter:
    """Writes bytes to part after part."""

    def __init__(self, folder: Path, part_bytes: int) -> None:
        self._folder, self._room = folder, part_bytes
        self._pending = bytearray()
        self.written: list[Part] = []

    def __enter__(self) -> "_PartWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._pending:
            self._end_part(len(self._pending))

    def write(self, packed: bytes) -> None:
        self._pending += packed
        while len(self._pending) >= self._room:
            self._end_part(self._room)

    def _end_part(self, size: int) -> None:
        content, name = bytes(self._pending[:size]), f"part-{len(self.written):03d}"
        del self._pending[:size]
        (self._folder / name).write_bytes(content)
        self.written.append(Part(name, size, hashlib.sha256(content).hexdigest()))


class _PartReader:
    """Reads bytes from part after part."""

    def __init__(self, folder: Path, index: Index) -> None:
        self._paths = iter([folder / part.name for part in index.parts])
        self._ready = bytearray()

    def read(self, size: int) -> bytes:
        """The next `size` bytes, which `read_index` has counted."""
        while len(self._ready) < size:
            self._ready += next(self._paths).read_bytes()
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found

"""Describes the weights files of a checkpoint; finds and checks those in the safetensors format."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from protocol.errors import BadModel, bad_model

HEADER_LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100 * 2**20  # the format's own limit
SAMPLE_BYTES = 4096

NUMBERS = ("F64", "F32", "F16", "BF16")
"""The unquantized types of weights, by the formats' names."""

RoundedType = Literal["int8", "int4", "centred_int4"]
"""Integers with a scale for each group of columns. int4 has a minimum as well; that of centred_int4 is -8 scales."""

QuantizedType = Literal[RoundedType, "int5", "int6"]
"""Also what only GGUF files have: int5 is as int4; int6 is centred, and has a scale for each half of a group."""

_SMALL_TYPES: Mapping[str, QuantizedType] = {
    "Q4_0": "centred_int4",
    "Q4_1": "int4",
    "Q4_K": "int4",
    "Q5_0": "int5",
    "Q5_1": "int5",
    "Q5_K": "int5",
    "Q6_K": "int6",
}


_REPRESENTED: Mapping[QuantizedType, Set[QuantizedType]] = {
    "centred_int4": {"centred_int4"},
    "int4": {"int4", "centred_int4"},
    "int5": {"int5", "int4", "centred_int4"},
    "int6": {"int6", "centred_int4"},
}
"""By type, the smallest first, those whose matrices it represents exactly."""


STAYING: Mapping[QuantizedType | None, Set[QuantizedType | None]] = {
    None: {*get_args(QuantizedType), None},
    "int8": {"int8"},
    "int4": {"int4", "centred_int4"},
}
"""By the type that is wanted, the types that a matrix may have to stay as it is stored."""


def common_type(types: Collection[QuantizedType | None]) -> QuantizedType | None:
    """The smallest type that represents matrices of all these types, as far as 8 bits do; None: unquantized."""
    if set(types) == {None}:
        return None
    for larger, represented in _REPRESENTED.items():
        if set(types) <= represented:
            return larger
    return "int8"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a weights file: its shape as in torch, [start, stop) in the file, the format's name of its type."""

    type_name: str  # "BF16", "Q4_K"
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def values(self) -> int:
        return math.prod(self.shape)

    @property
    def kernel_type(self) -> QuantizedType | None:
        """The type of the CPU kernel that is nearest to a quantized one of GGUF; None for unquantized numbers."""
        if not self.type_name.startswith(("Q", "IQ", "TQ", "MXFP", "NVFP")):
            return None
        return _SMALL_TYPES.get(self.type_name, "int8")


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """One file of weights whose length matches its header."""

    path: Path
    header: bytes
    tensors: Mapping[str, StoredTensor]  # by the name in a safetensors file

    @property
    def size(self) -> int:
        return self.path.stat().st_size


def find_weights(folder: Path) -> tuple[WeightsFile, ...]:
    """The checked weights files of a model folder; BadModel, naming the file, if one is missing or damaged."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        return (read_header(single),)
    if index.is_file():
        return tuple(read_header(folder / name) for name in _shards(index))
    if any(folder.glob("*.bin")):
        raise BadModel(f"{folder} has only pickled weights (*.bin), which can run code: convert them to safetensors")
    raise BadModel(f"{folder} has no weights: it holds neither model.safetensors nor model.safetensors.index.json")


def read_header(path: Path) -> WeightsFile:
    """The header of a safetensors file; BadModel if the file is missing, truncated or not one."""
    from safetensors import safe_open  # here, since a core with a remote engine does without it

    with bad_model(f"{path} is not a safetensors file, or is truncated"):
        if not path.exists():
            raise BadModel(f"{path} is missing: the checkpoint is incomplete")
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(HEADER_LENGTH_BYTES))
            if length > min(MAX_HEADER_BYTES, size):
                raise ValueError(f"a header of {length} bytes")
            header = file.read(length)
        base = HEADER_LENGTH_BYTES + length
        entries = json.loads(header).items()
        tensors = {name: _stored(entry, base) for name, entry in entries if name != "__metadata__"}
    expected = max((tensor.stop for tensor in tensors.values()), default=base)
    if size != expected:
        raise BadModel(f"{path} is damaged: {size} bytes where its header describes {expected}. Download it again")
    with bad_model(f"{path} is not a safetensors file, or is damaged"), safe_open(path, framework="numpy"):
        return WeightsFile(path, header, tensors)  # shapes, types and places are as its library checks them


def update_identity(digest: hashlib._Hash, weights: WeightsFile) -> None:
    """Add what distinguishes these weights to the digest: the header, the modification time, both ends of every tensor.

    Reading all of a 15 GB checkpoint at every start would cost more than the saved KV is worth.
    """
    digest.update(weights.header)
    digest.update(str(weights.path.stat().st_mtime_ns).encode())
    with weights.path.open("rb") as file:
        for tensor in weights.tensors.values():
            for position in (tensor.start, max(tensor.start, tensor.stop - SAMPLE_BYTES)):
                file.seek(position)
                digest.update(file.read(min(SAMPLE_BYTES, tensor.stop - position)))


def _stored(entry: Mapping[str, Any], base: int) -> StoredTensor:
    start, stop = entry["data_offsets"]
    return StoredTensor(str(entry["dtype"]), tuple(map(int, entry["shape"])), base + int(start), base + int(stop))


def _shards(index: Path) -> Iterator[str]:
    with bad_model(f"{index} is not an index of safetensors files"):
        names = sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    for name in names:
        if Path(name).name != name:
            raise BadModel(f"{index} names a file outside its folder: {name!r}")
        yield name

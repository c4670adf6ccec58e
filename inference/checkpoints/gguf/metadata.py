"""Metadata of GGUF files: reads the header, and tells the size of the recurrent states that it describes."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.checkpoints.weights import StoredTensor
from protocol.errors import BadModel

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 2**16
"""Metadata entries, and tensors: real files have a few dozen, and a few thousand."""
MOST_ELEMENTS = 2**22
"""Elements of a metadata array: the largest vocabularies and lists of merges have half a million."""
DEFAULT_ALIGNMENT = 32

_ARRAY, _STRING, _BOOL = 9, 8, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a complete GGUF file: metadata by key, with arrays as tuples, and tensors by name, in order."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the model's family, which prefixes its keys; empty if the file has none."""
        name = self.metadata.get("general.architecture", "")
        return name if isinstance(name, str) else ""

    def of_model(self, key: str, default: Any = None) -> Any:
        """The value of a key that the architecture prefixes, such as `block_count`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


def read_gguf_header(path: Path, *, tensors: bool = True) -> GgufHeader:
    """The header of `path`; BadModel, naming the file and the fault, if it is missing, truncated or no GGUF file.

    Without `tensors` it has metadata alone, so that types of tensors which midfill does not know are no fault.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(content).header(path, tensors=tensors)
    except FileNotFoundError as error:
        raise BadModel(f"{path} is missing") from error
    except _Fault as error:
        raise BadModel(f"{path} is not a GGUF file that midfill can read, or is damaged: {error}") from error
    except (OSError, ValueError) as error:  # mmap refuses an empty file with ValueError
        raise BadModel(f"{path} cannot be read as a GGUF file: {error}") from error


class _Fault(Exception):
    """The complaint about a file."""


class _Reader:
    """Reads values from the beginning of a file on; a value beyond its end is a fault."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._size = len(content)
        self._at = 0

    def header(self, path: Path, *, tensors: bool) -> GgufHeader:
        if self._content[: len(MAGIC)] != MAGIC:
            raise _Fault(f"it begins with {self._content[: len(MAGIC)]!r}, not with {MAGIC!r}")
        self._at = len(MAGIC)
        version = self._number("I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            raise _Fault("its numbers are big-endian" if swapped else f"its version is {version}")
        tensor_count, entry_count = (self._count("Q", MOST_ENTRIES) for _ in range(2))
        metadata = {self._string(): self._value(self._number("I")) for _ in range(entry_count)}
        if not tensors:
            return GgufHeader(path, metadata, {})
        listed = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Fault(f"general.alignment is {alignment!r}")
        data = -(-self._at // alignment) * alignment
        stored = {name: StoredTensor(kind, shape, data + at, data + at + size) for name, kind, shape, at, size in listed}
        if len(stored) < len(listed):
            raise _Fault("it has two tensors of one name")
        end = max((tensor.stop for tensor in stored.values()), default=0)
        if end > self._size:
            raise _Fault(f"it has {self._size} bytes, and its header describes {end}: download it again")
        return GgufHeader(path, metadata, stored)

    def _tensor(self) -> tuple[str, str, tuple[int, ...], int, int]:
        """Name, type, shape, offset in the data and size in bytes of the next tensor."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        name = self._string()
        shape = tuple(reversed([self._number("Q") for _ in range(self._count("I", 8))]))
        number, offset = self._number("I"), self._number("Q")
        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            raise _Fault(f"the tensor {name!r} has the unknown type {number}") from error
        block_values, block_bytes = GGML_QUANT_SIZES[kind]
        return name, kind.name, shape, offset, math.prod(shape) // block_values * block_bytes

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(self._code(kind))
        kind = self._number("I")
        count = self._count("Q", MOST_ELEMENTS)
        if kind == _STRING:
            return self._strings(count)
        return struct.unpack(f"<{count}{self._code(kind)}", self._take(count * struct.calcsize(f"<{self._code(kind)}")))

    def _code(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise _Fault(f"a metadata value has the unknown type {kind}")
        return _NUMBERS[kind]

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _count(self, code: str, most: int) -> int:
        count: int = self._number(code)
        if count > most:
            raise _Fault(f"it claims {count} entries where at most {most} are plausible")
        return count

    def _string(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", "replace")

    def _strings(self, count: int) -> tuple[str, ...]:
        """As `_string`, `count` times: a vocabulary has 100,000 of them."""
        content, at, length_at = self._content, self._at, struct.Struct("<Q").unpack_from
        strings = []
        try:
            for _ in range(count):
                (length,) = length_at(content, at)
                at += 8 + length
                strings.append(content[at - length : at].decode("utf-8", "replace"))
        except (struct.error, OverflowError):  # a length leads beyond the file
            at = self._size + 1
        self._at = at
        self._take(0)  # checks that the last one ends within the file
        return tuple(strings)

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > self._size:
            raise _Fault(f"it ends after {self._size} bytes, within its header")
        return self._content[start : self._at]


def midfill_notes(header: GgufHeader) -> dict[str, Any]:
    """The notes of midfill in a file about its model."""
    notes = {key: header.metadata.get(f"midfill.{key}") for key in ("fim_format", "fragments_suffice")}
    return {key: value for key, value in notes.items() if value is not None}


FLOAT_BYTES = 4


def state_bytes(header: GgufHeader) -> int:
    """Bytes of one copy of all layers' states, in float32 as llama.cpp keeps them; 0 for attention alone.

    At most: where the metadata do not tell the layers with a state from those with neither, both count.
    """
    sizes = {key.partition(".")[2]: value for key, value in header.metadata.items()}
    convolved = max(0, _size(sizes, "ssm.conv_kernel") - 1)
    if kept := _size(sizes, "shortconv.l_cache"):  # LFM2
        values = _size(sizes, "embedding_length") * (kept - 1)
    elif head := _size(sizes, "kda.head_dim"):  # Kimi Linear
        values = _size(sizes, "attention.head_count") * head * (3 * convolved + head)
    else:  # Mamba, and the gated delta rule of Qwen
        inner, state = _size(sizes, "ssm.inner_size"), _size(sizes, "ssm.state_size")
        values = convolved * (inner + 2 * _size(sizes, "ssm.group_count") * state) + state * inner
    return FLOAT_BYTES * values * _layers(sizes)


def _layers(sizes: Mapping[str, Any]) -> int:
    """The layers that may have a state: those without keys and values where the file tells them, or else all."""
    layers, kv_heads = _size(sizes, "block_count"), sizes.get("attention.head_count_kv")
    if isinstance(kv_heads, tuple) and 0 in kv_heads:
        return kv_heads.count(0)
    interval = _size(sizes, "full_attention_interval")
    return layers - layers // interval if interval else layers


def _size(sizes: Mapping[str, Any], key: str) -> int:
    """A size, the largest of several layers'; 0 for anything else."""
    value = sizes.get(key)
    several = value if isinstance(value, tuple) else (value,)
    return max((each for each in several if isinstance(each, int) and each > 0), default=0)

"""The matrices of a checkpoint as the CPU kernel takes them: read row by row, quantized ones in the kernel's nearest type.

Q8_0, Q5_0, Q5_1, Q4_0 and Q4_1 keep every value. Q4_K, Q5_K and Q6_K store the scale and the minimum of a group as
products of a float16 and a small integer, which are rounded to float16 here. All other quantized types become int8.
Those that are kept stand in `BLOCK_FORMATS` of `library.py`, in `kernel/blocks.h` and in `inference/checkpoints/gguf/blocks.py`;
of 4 to 6 bits also in `_SMALL_TYPES` of `inference/checkpoints/weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import gguf
import numpy as np
from numpy.typing import NDArray

from inference.backends.cpu.library import BLOCK_FORMATS, NUMBER_TYPES, load_library
from inference.backends.layer_weights import FileTensors
from inference.checkpoints.quantized_matrix import GROUP, QuantizedMatrix
from inference.checkpoints.stored_bytes import read_rows, read_stored
from inference.checkpoints.weights import STAYING, QuantizedType, StoredTensor, common_type

if TYPE_CHECKING:
    from torch import Tensor

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A tensor [rows, columns] of a file; row i of the matrix is row `order[i]` of the tensor."""

    path: Path
    tensor: StoredTensor
    order: Rows

    def read(self, rows: Rows, matrix: Numbers, places: Rows) -> None:
        """Put these rows at these places of the matrix: of floats, of a type that represents theirs, or of int8."""
        tensor, wanted = self.tensor, self.order[rows]
        if isinstance(matrix, QuantizedMatrix) and _has(matrix, tensor):
            first, last = int(wanted.min()), int(wanted.max())
            size = (tensor.stop - tensor.start) // tensor.shape[0]
            stored = read_stored(self.path, tensor.start + first * size, (last + 1 - first) * size)
            _keep(stored, tensor.type_name, np.ascontiguousarray(wanted - first), matrix, places)
            return
        values = floats(read_rows(self.path, tensor, wanted), tensor.type_name)
        if isinstance(matrix, QuantizedMatrix):
            _round(values, matrix, places)
        else:
            matrix[places] = values


def _has(matrix: QuantizedMatrix, tensor: StoredTensor) -> bool:
    """Whether the matrix has the tensor's very numbers, and the kernel's library reads them."""
    return tensor.type_name in BLOCK_FORMATS and (matrix.type == tensor.kernel_type or matrix.type != "int8")


def floats(stored: NDArray[np.uint8], type_name: str) -> NDArray[np.float32]:
    """The values [rows, columns] of the bytes [rows, bytes of a row] of a tensor."""
    if type_name == "F64":  # which only safetensors files have
        return stored.view(np.float64).astype(np.float32)
    return np.asarray(gguf.dequantize(stored, gguf.GGMLQuantizationType[type_name]), np.float32)


def _round(values: NDArray[np.float32], matrix: QuantizedMatrix, places: Rows) -> None:
    """Put rows at places of the matrix, rounded to int8."""
    import torch  # here, since hardly any file needs it

    from inference.checkpoints.quantization import quantize

    rounded = quantize(torch.from_numpy(values), "int8")
    matrix.numbers[places], matrix.scales[places] = rounded.numbers.numpy(), rounded.scales.numpy()


def _keep(stored: NDArray[np.uint8], type_name: str, sources: Rows, matrix: QuantizedMatrix, places: Rows) -> None:
    """Put rows of a tensor's bytes, by their numbers, at places of the matrix, whose type represents theirs."""
    load_library().midfill_kernel_read(
        BLOCK_FORMATS.index(type_name),
        stored.ctypes.data,
        sources.ctypes.data,
        places.ctypes.data,
        len(places),
        matrix.shape[1],
        NUMBER_TYPES[matrix.type],
        matrix.numbers.ctypes.data,
        matrix.scales.ctypes.data,
        None if matrix.minima is None else matrix.minima.ctypes.data,
    )


def zeros(rows: int, columns: int, type_: QuantizedType) -> QuantizedMatrix:
    """A matrix of zeros, to be filled in place."""
    numbers = np.zeros((rows, columns), np.int8 if type_ == "int8" else np.uint8)
    scales = np.zeros((rows, columns // GROUP * (2 if type_ == "int6" else 1)), np.float16)
    return QuantizedMatrix(type_, numbers, scales, np.zeros_like(scales) if type_ in ("int4", "int5") else None)


Numbers: TypeAlias = QuantizedMatrix | NDArray[np.float32]


class StoredMatrix:
    """Tensors one below the other, in the type that all can have. Rows that are taken are in memory."""

    def __init__(self, parts: Sequence[StoredRows], order: Rows | None = None, *, stays: bool = True) -> None:
        """order: by row, the row of the parts, counted from 1; 0 stands for a row of zeros. None keeps theirs.

        stays: whether quantized tensors stay so; else they are read as floats, as unquantized ones are.
        """
        self._parts, self._stays = parts, stays
        self._ends = np.cumsum([part.tensor.shape[0] for part in parts])
        self._order = np.arange(1, int(self._ends[-1]) + 1) if order is None else order
        self.type = common_type({part.tensor.kernel_type for part in parts}) if stays else None

    @property
    def is_bfloat16(self) -> bool:
        """Whether all numbers of the file are bfloat16."""
        return all(part.tensor.type_name == "BF16" for part in self._parts)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._order), self._parts[0].tensor.shape[1]

    def map(self, change: Callable[[Rows], Rows]) -> StoredMatrix:
        """The matrix with its rows rearranged by `change`, which may add rows of zeros."""
        return StoredMatrix(self._parts, change(self._order), stays=self._stays)

    def by_type(self) -> list[StoredMatrix]:
        """The matrix, cut where the type of its tensors changes."""
        if self.type is None:
            return [self]
        runs = groupby(self._parts, lambda part: common_type({part.tensor.kernel_type}))
        return [StoredMatrix(tuple(parts)) for _, parts in runs]

    def __getitem__(self, rows: slice) -> Numbers:
        order = self._order[rows] - 1
        shape = len(order), self.shape[1]
        matrix: Numbers = np.zeros(shape, np.float32) if self.type is None else zeros(*shape, self.type)
        for part, end in zip(self._parts, self._ends, strict=True):
            first = end - part.tensor.shape[0]
            places = np.flatnonzero((order >= first) & (order < end))
            if len(places):
                part.read(order[places] - first, matrix, places)
        return matrix


Matrix: TypeAlias = "Tensor | NDArray[Any] | QuantizedMatrix | StoredMatrix"


class StoredReader:
    """Implements `WeightsReader[Matrix]`: matrices stay in the file, quantized if they are; vectors are float32."""

    def __init__(self, tensors: FileTensors, only: Literal["int8", "int4"] | None = None) -> None:
        """only: the quantized types that stay so."""
        self._tensors = tensors
        self._staying = STAYING[only]

    def has(self, name: str) -> bool:
        return self._tensors.has(name)

    def vector(self, name: str, count: int) -> NDArray[np.float32]:
        return self._read(name, count)

    def vectors(self, counts: Mapping[str, int]) -> NDArray[np.float32]:
        return np.concatenate([self.vector(name, count) for name, count in counts.items()])

    def taps(self, name: str, channels: int, width: int) -> NDArray[np.float32]:
        return self._read(name, channels, *self._tensors.between_taps, width).reshape(channels, width)

    def matrix(self, rows: Mapping[str, int], columns: int) -> StoredMatrix:
        found = [(name, *self._tensors.find(name, count, columns)) for name, count in rows.items()]
        parts = [StoredRows(file.path, tensor, self._tensors.order(name, tensor.shape[0])) for name, file, tensor in found]
        return StoredMatrix(parts, stays={tensor.kernel_type for _, _, tensor in found} <= self._staying)

    def _read(self, name: str, *shape: int) -> NDArray[np.float32]:
        file, tensor = self._tensors.find(name, *shape)
        stored = read_stored(file.path, tensor.start, tensor.stop - tensor.start)
        values = floats(stored.reshape(shape[0], -1), tensor.type_name).reshape(shape)
        read: NDArray[np.float32] = values[self._tensors.order(name, shape[0])]
        return read

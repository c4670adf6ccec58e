"""Quantized matrices of GGUF files as the CPU kernel takes them: read row by row, in the kernel's nearest type.

Q8_0, Q5_0, Q5_1, Q4_0 and Q4_1 keep every value. Q4_K, Q5_K and Q6_K store the scale and the minimum of a group as
products of a float16 and a small integer, which are rounded to float16 here. All other quantized types become int8.
Those that are kept stand in `BLOCK_FORMATS` of `library.py`, in `kernel/blocks.h` and in `inference/checkpoints/gguf/blocks.py`;
of 4 to 6 bits also in `_SMALL_TYPES` of `inference/checkpoints/weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import gguf
import numpy as np
from numpy.typing import NDArray

from inference.backends.cpu.library import BLOCK_FORMATS, NUMBER_TYPES, load_library
from inference.backends.layer_weights import GgufTensors
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.quantized_matrix import GROUP, QuantizedMatrix
from inference.checkpoints.weights import QuantizedType, StoredTensor, WeightsFile, common_type, read_stored

if TYPE_CHECKING:
    from torch import Tensor

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A tensor [rows, columns] of a file; row i of the matrix is row `order[i]` of the tensor."""

    path: Path
    tensor: StoredTensor
    order: Rows

    def read(self, rows: Rows, matrix: QuantizedMatrix, places: Rows) -> None:
        """Put these rows at these places of the matrix, whose type represents theirs, or is int8."""
        tensor, wanted = self.tensor, self.order[rows]
        first, last = int(wanted.min()), int(wanted.max())
        size = (tensor.stop - tensor.start) // tensor.shape[0]
        stored = read_stored(self.path, tensor.start + first * size, (last + 1 - first) * size)
        if tensor.type_name in BLOCK_FORMATS and (matrix.type == tensor.kernel_type or matrix.type != "int8"):
            read_rows(stored, tensor.type_name, np.ascontiguousarray(wanted - first), matrix, places)
            return
        _round(stored.reshape(-1, size)[wanted - first], tensor.type_name, matrix, places)


def _round(stored: NDArray[np.uint8], type_name: str, matrix: QuantizedMatrix, places: Rows) -> None:
    """As `read_rows`, for types that the kernel's library does not read, to int8."""
    import torch  # here, since hardly any file needs it

    from inference.checkpoints.gguf.blocks import dequantized
    from inference.checkpoints.quantization import quantize

    rounded = quantize(dequantized(torch.from_numpy(stored), type_name), "int8")
    matrix.numbers[places], matrix.scales[places] = rounded.numbers.numpy(), rounded.scales.numpy()


def read_rows(stored: NDArray[np.uint8], type_name: str, sources: Rows, matrix: QuantizedMatrix, places: Rows) -> None:
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


class StoredMatrix:
    """Tensors one below the other, in the type that all can have. Rows that are taken are in memory."""

    def __init__(self, parts: Sequence[StoredRows], order: Rows | None = None) -> None:
        """order: by row, the row of the parts, counted from 1; 0 stands for a row of zeros. None keeps theirs."""
        self._parts = parts
        self._ends = np.cumsum([part.tensor.shape[0] for part in parts])
        self._order = np.arange(1, int(self._ends[-1]) + 1) if order is None else order
        self.type: QuantizedType = common_type({part.tensor.kernel_type for part in parts})

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._order), self._parts[0].tensor.shape[1]

    def map(self, change: Callable[[Rows], Rows]) -> StoredMatrix:
        """The matrix with its rows rearranged by `change`, which may add rows of zeros."""
        return StoredMatrix(self._parts, change(self._order))

    def by_type(self) -> list[StoredMatrix]:
        """The matrix, cut where the type of its tensors changes."""
        runs = groupby(self._parts, lambda part: common_type({part.tensor.kernel_type}))
        return [StoredMatrix(tuple(parts)) for _, parts in runs]

    def __getitem__(self, rows: slice) -> QuantizedMatrix:
        order = self._order[rows] - 1
        matrix = zeros(len(order), self.shape[1], self.type)
        for part, end in zip(self._parts, self._ends, strict=True):
            first = end - part.tensor.shape[0]
            places = np.flatnonzero((order >= first) & (order < end))
            if len(places):
                part.read(order[places] - first, matrix, places)
        return matrix


Matrix: TypeAlias = "Tensor | NDArray[Any] | QuantizedMatrix | StoredMatrix"

_STAYING: Mapping[QuantizedType | None, Set[QuantizedType | None]] = {
    None: {*get_args(QuantizedType), None},
    "int8": {"int8"},
    "int4": {"int4", "centred_int4"},
}
"""By the type that is wanted, the types that a matrix may have to stay as it is stored."""


class QuantizedGgufReader(GgufTensors):
    """Implements `WeightsReader[Matrix]`: matrices stay quantized if they are, in the nearest type of the kernel."""

    def __init__(
        self, files: Sequence[WeightsFile], architecture: Architecture, dtype: str, only: Literal["int8", "int4"] | None = None
    ) -> None:
        """dtype: of unquantized matrices; only: the types that stay, where others are dequantized to that dtype."""
        super().__init__(files, architecture)
        self._files, self._dtype = files, dtype
        self._staying = _STAYING[only]

    def vector(self, name: str, count: int) -> NDArray[np.float32]:
        return self._read(name, count)

    def vectors(self, counts: Mapping[str, int]) -> NDArray[np.float32]:
        return np.concatenate([self.vector(name, count) for name, count in counts.items()])

    def taps(self, name: str, channels: int, width: int) -> NDArray[np.float32]:
        return self._read(name, channels, width)

    def matrix(self, rows: Mapping[str, int], columns: int) -> Matrix:
        """As in the interface; a StoredMatrix if any is quantized, and of the type that stays; else a tensor."""
        found = [(name, *self.find(name, count, columns)) for name, count in rows.items()]
        types = {tensor.kernel_type for _, _, tensor in found}
        if types == {None} or not types <= self._staying:
            import torch  # here, since most files are quantized as they are wanted

            from inference.backends.llama.weights import GgufReader

            whole = GgufReader(self._files, self._architecture, getattr(torch, self._dtype), torch.device("cpu"))
            return whole.matrix(rows, columns)
        return StoredMatrix([StoredRows(file.path, tensor, self.order(name, tensor.shape[0])) for name, file, tensor in found])

    def _read(self, name: str, *shape: int) -> NDArray[np.float32]:
        file, tensor = self.find(name, *shape)
        stored = read_stored(file.path, tensor.start, tensor.stop - tensor.start)
        values = gguf.dequantize(stored.reshape(shape[0], -1), gguf.GGMLQuantizationType[tensor.type_name])
        read: NDArray[np.float32] = np.asarray(values, np.float32).reshape(shape)[self.order(name, shape[0])]
        return read

"""A quantized matrix of a GGUF file, which is read and unpacked a few rows at a time: memory never holds it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.checkpoints.gguf import blocks as gguf_blocks
from inference.checkpoints.quantization import GROUP, QuantizedMatrix, quantize
from inference.checkpoints.weights import QuantizedType, StoredTensor, common_type

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A tensor [rows, columns] of a file; row i of the matrix is row `order[i]` of the tensor."""

    path: Path
    tensor: StoredTensor
    order: Rows

    def take(self, rows: Rows) -> QuantizedMatrix:
        """These rows of the matrix, in the nearest type of the kernel."""
        places = self.order[rows]
        first, last = int(places.min()), int(places.max())
        size = (self.tensor.stop - self.tensor.start) // self.tensor.shape[0]
        stored = np.fromfile(
            self.path, np.uint8, (last + 1 - first) * size, offset=self.tensor.start + first * size
        ).reshape(-1, size)[places - first]
        if self.tensor.kernel_type is None:
            return quantize(gguf_blocks.dequantized(stored, self.tensor.type_name), "int8")
        return gguf_blocks.quantized(stored, self.tensor.type_name)


class StoredMatrix:
    """Tensors one below the other, in the type that all can have. Rows that are taken are in memory."""

    def __init__(self, parts: Sequence[StoredRows], order: Tensor | None = None) -> None:
        """order: by row, the row of the parts, counted from 1; 0 stands for a row of zeros. None keeps theirs."""
        self._parts = parts
        self._ends = np.cumsum([part.tensor.shape[0] for part in parts])
        self._order = torch.arange(1, int(self._ends[-1]) + 1) if order is None else order
        self.type: QuantizedType = common_type({part.tensor.kernel_type for part in parts})

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self._order), self._parts[0].tensor.shape[1]))

    def map(self, change: Callable[[Tensor], Tensor]) -> StoredMatrix:
        """The matrix with its rows rearranged by `change`, which may add rows of zeros."""
        return StoredMatrix(self._parts, change(self._order))

    def __getitem__(self, rows: slice) -> QuantizedMatrix:
        return gguf_blocks.stacked(list(self._pieces(self._order[rows].numpy() - 1)), self.type)

    def _pieces(self, rows: Rows) -> Iterator[QuantizedMatrix]:
        """The runs of rows that are of one part, or of none."""
        owners = np.where(rows < 0, -1, np.searchsorted(self._ends, rows, side="right"))
        for run in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(owners)) + 1):
            owner = int(owners[run[0]])
            if owner < 0:
                yield self._zeros(len(run))
            else:
                yield self._parts[owner].take(rows[run] - (self._ends[owner - 1] if owner else 0))

    def _zeros(self, count: int) -> QuantizedMatrix:
        numbers = torch.zeros(count, self.shape[1], dtype=torch.int8 if self.type == "int8" else torch.uint8)
        scales = torch.zeros(count, self.shape[1] // GROUP, dtype=torch.float16)
        return QuantizedMatrix(numbers, scales, scales.clone() if self.type == "int4" else None)

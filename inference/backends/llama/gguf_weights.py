"""Reads the decoder's weights from GGUF files: quantized as they are stored, or as tensors of a dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.backends.llama.stored_matrix import StoredMatrix, StoredRows
from inference.backends.llama.weights import Matrix
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.gguf import blocks as gguf_blocks
from inference.checkpoints.weights import QuantizedType, StoredTensor, WeightsFile
from protocol.errors import BadModel

_STAYING: Mapping[QuantizedType | None, Set[QuantizedType | None]] = {
    None: {"int8", "int4", "centred_int4", None},
    "int8": {"int8"},
    "int4": {"int4", "centred_int4"},
}
"""By the type that is wanted, the types that a matrix may have to stay as it is stored."""

_TURNED = (".q_proj.weight", ".k_proj.weight", ".q_proj.bias", ".k_proj.bias")


class GgufReader:
    """Implements `WeightsReader[Tensor]`: dequantizes every tensor."""

    def __init__(
        self, files: Sequence[WeightsFile], architecture: Architecture, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._stored = {name: (file, tensor) for file in files for name, tensor in file.tensors.items()}
        self._architecture = architecture
        self._dtype = dtype
        self._device = device

    def has(self, name: str) -> bool:
        return name in self._stored

    def vector(self, name: str, count: int) -> Tensor:
        stored, tensor = self._open(name, count)
        return self._tensor(stored, tensor).flatten()

    def matrix(self, rows: Mapping[str, int], columns: int) -> Tensor:
        return torch.cat([self._tensor(*self._open(name, count, columns)) for name, count in rows.items()])

    def _tensor(self, stored: NDArray[np.uint8], tensor: StoredTensor) -> Tensor:
        return gguf_blocks.dequantized(stored, tensor.type_name).to(self._device, self._dtype)

    def _open(self, name: str, *shape: int) -> tuple[NDArray[np.uint8], StoredTensor]:
        """The stored bytes [rows, bytes of a row], of a vector [count, bytes of a number]; read when they are used."""
        file, tensor = self._find(name, *shape)
        stored: NDArray[Any] = np.memmap(
            file.path, np.uint8, "r", offset=tensor.start, shape=(shape[0], (tensor.stop - tensor.start) // shape[0])
        )
        return stored[self._order(name, shape[0])], tensor

    def _find(self, name: str, *shape: int) -> tuple[WeightsFile, StoredTensor]:
        if name not in self._stored:
            raise BadModel(f"the checkpoint has no tensor {name!r}: it is incomplete, or of another architecture")
        file, tensor = self._stored[name]
        if tensor.shape != shape:
            raise BadModel(f"{file.path}: {name} has the shape {tensor.shape}, and the file's fields say {shape}")
        return file, tensor

    def _order(self, name: str, rows: int) -> Any:
        """The rows of queries and keys as our RoPE wants them, whose pairs lie half a head apart.

        llama.cpp has them side by side for the architecture `llama`.
        """
        if self._architecture.model_type != "llama" or not name.endswith(_TURNED):
            return slice(None)
        heads = rows // self._architecture.head_dim
        return np.arange(rows).reshape(heads, -1, 2).transpose(0, 2, 1).reshape(-1)


class QuantizedGgufReader(GgufReader):
    """Implements `WeightsReader[Matrix]`: matrices stay quantized if they are, in the nearest type of the kernel."""

    def __init__(
        self,
        files: Sequence[WeightsFile],
        architecture: Architecture,
        dtype: torch.dtype,
        only: Literal["int8", "int4"] | None = None,
    ) -> None:
        """dtype: of unquantized tensors; only: the types that stay, where others are dequantized to that dtype."""
        super().__init__(files, architecture, dtype, torch.device("cpu"))
        self._staying = _STAYING[only]

    def matrix(self, rows: Mapping[str, int], columns: int) -> Matrix:  # type: ignore[override] # of another interface
        """As in the interface; a StoredMatrix if any is quantized, and of the type that stays."""
        found = [(name, *self._find(name, count, columns)) for name, count in rows.items()]
        types = {tensor.kernel_type for _, _, tensor in found}
        if types == {None} or not types <= self._staying:
            return super().matrix(rows, columns)
        return StoredMatrix(
            [
                StoredRows(file.path, tensor, np.arange(tensor.shape[0])[self._order(name, tensor.shape[0])])
                for name, file, tensor in found
            ]
        )

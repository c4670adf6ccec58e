"""The decoder's weights: reads them from safetensors or GGUF files, and fuses projections that share their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.backends.layer_weights import GgufTensors, LayerWeights, StreamedWeights, WeightsReader
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.gguf import blocks as gguf_blocks
from inference.checkpoints.weights import StoredTensor, WeightsFile
from protocol.errors import BadModel, bad_model


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a model in memory, of one dtype and on one device."""

    embedding: Tensor  # [vocabulary, hidden]
    layers: tuple[LayerWeights[Tensor], ...]
    final_norm: Tensor  # [hidden]
    head: Tensor  # [vocabulary, hidden]; the embedding itself if tied
    final_norm_bias: Tensor | None = None  # [hidden]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; a head that is the embedding counts once."""
        layered = [getattr(layer, field.name) for layer in self.layers for field in fields(layer)]
        tensors = {id(tensor): tensor for tensor in (self.embedding, self.head, self.final_norm, *layered)}
        return sum(tensor.nbytes for tensor in tensors.values() if tensor is not None)


_NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # others need the scales of a quantization


class TensorReader:
    """Implements `WeightsReader` for safetensors files."""

    def __init__(
        self,
        files: Sequence[WeightsFile],
        dtype: torch.dtype | None,
        device: torch.device,
        stored_name: Callable[[str], str] = str,
    ) -> None:
        """dtype: of the tensors that are returned; None keeps that of the file. stored_name: of ours, in the file."""
        self._file_of = {name: file.path for file in files for name in file.tensors}
        self._stored_name = stored_name
        self._dtype = dtype
        self._device = device

    def has(self, name: str) -> bool:
        return self._stored_name(name) in self._file_of

    def taps(self, name: str, channels: int, width: int) -> Tensor:
        return self._read(name, channels, 1, width).squeeze(1)

    def vector(self, name: str, count: int) -> Tensor:
        return self._read(name, count)

    def vectors(self, counts: Mapping[str, int]) -> Tensor:
        return torch.cat([self.vector(name, count) for name, count in counts.items()])

    def matrix(self, rows: Mapping[str, int], columns: int) -> Tensor:
        tensors = [self._read(name, count, columns) for name, count in rows.items()]
        return tensors[0] if len(tensors) == 1 else torch.cat(tensors)

    def _read(self, name: str, *shape: int) -> Tensor:
        name = self._stored_name(name)
        path = self._file_of.get(name)
        if path is None:
            raise BadModel(f"the checkpoint has no tensor {name!r}: it is incomplete, or has another architecture")
        try:
            with safe_open(path, framework="pt") as file:
                tensor: Tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise BadModel(f"{path} cannot be read: {error}") from error
        if tuple(tensor.shape) != shape:
            raise BadModel(f"{path}: {name} has the shape {tuple(tensor.shape)}, but config.json implies {shape}")
        if tensor.dtype not in _NUMBERS:
            raise BadModel(f"{path}: {name} is of the dtype {tensor.dtype}, expected {', '.join(map(str, _NUMBERS))}")
        return tensor.to(self._device, self._dtype)


def read_decoder_weights(
    architecture: Architecture, reader: WeightsReader[Tensor], progress: Callable[[float], None]
) -> DecoderWeights:
    """All weights of a checkpoint; `progress` receives the share read so far, 0..1."""
    weights = StreamedWeights(architecture, reader, progress)
    embedding = weights.embedding
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(weights.layers),
        final_norm=weights.final_norm,
        head=embedding if architecture.tied_embeddings else weights.head,
    )


VALUES_AT_ONCE = 2**23
"""Of a GGUF file, that are dequantized together, and take 100 MB meanwhile."""


class GgufReader(GgufTensors):
    """Implements `WeightsReader[Tensor]`: dequantizes every tensor, on the device that will hold it."""

    def __init__(
        self, files: Sequence[WeightsFile], architecture: Architecture, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__(files, architecture)
        self._dtype = dtype
        self._device = device

    def vector(self, name: str, count: int) -> Tensor:
        return self._read({name: count}, 1, count).flatten()

    def vectors(self, counts: Mapping[str, int]) -> Tensor:
        return torch.cat([self.vector(name, count) for name, count in counts.items()])

    def taps(self, name: str, channels: int, width: int) -> Tensor:
        return self._read({name: channels}, width, channels, width)

    def matrix(self, rows: Mapping[str, int], columns: int) -> Tensor:
        return self._read(rows, columns)

    def _read(self, rows: Mapping[str, int], columns: int, *shape: int) -> Tensor:
        """The tensors one below the other, dequantized on the device; shape: of a single one, if not [rows, columns]."""
        whole = torch.empty(sum(rows.values()), columns, dtype=self._dtype, device=self._device)
        at_once = max(1, VALUES_AT_ONCE // columns)
        for (name, count), part in zip(rows.items(), torch.split(whole, list(rows.values())), strict=True):
            stored, tensor = self._open(name, *(shape or (count, columns)))
            for piece, goal in zip(torch.split(stored, at_once), torch.split(part, at_once), strict=True):
                goal.copy_(gguf_blocks.dequantized(piece.to(self._device), tensor.type_name))
        return whole

    def _open(self, name: str, *shape: int) -> tuple[Tensor, StoredTensor]:
        """The stored bytes [rows, bytes of a row], of a vector [count, bytes of a number]; read when they are used."""
        file, tensor = self.find(name, *shape)
        size = (tensor.stop - tensor.start) // shape[0]
        with bad_model(f"{file.path} cannot be read any more"):
            stored: NDArray[Any] = np.memmap(file.path, np.uint8, "c", offset=tensor.start, shape=(shape[0], size))
        return torch.from_numpy(stored[self.order(name, shape[0])]), tensor

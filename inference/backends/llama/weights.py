"""The decoder's weights: reads them from safetensors or GGUF files, and fuses projections that share their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from inference.backends.layer_weights import FileTensors, GgufTensors, LayerWeights, StreamedWeights, WeightsReader
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.gguf import blocks as gguf_blocks
from inference.checkpoints.stored_bytes import read_rows, read_stored
from inference.checkpoints.weights import WeightsFile


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


_NUMBERS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class TensorReader(FileTensors):
    """Implements `WeightsReader` for safetensors files."""

    def __init__(
        self, files: Sequence[WeightsFile], dtype: torch.dtype, device: torch.device, stored_name: Callable[[str], str] = str
    ) -> None:
        """dtype: of the tensors that are returned."""
        super().__init__(files, stored_name)
        self._dtype = dtype
        self._device = device

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
        file, tensor = self.find(name, *shape)
        numbers = torch.from_numpy(read_stored(file.path, tensor.start, tensor.stop - tensor.start))
        return numbers.view(_NUMBERS[tensor.type_name]).view(shape).to(self._device, self._dtype)


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
            file, tensor = self.find(name, *(shape or (count, columns)))
            order = self.order(name, count)
            for first, goal in zip(range(0, count, at_once), torch.split(part, at_once), strict=True):
                stored = read_rows(file.path, tensor, order[first : first + at_once])
                goal.copy_(gguf_blocks.dequantized(torch.from_numpy(stored).to(self._device), tensor.type_name))
        return whole

"""Reads the decoder's weights from a Hugging Face checkpoint and fuses projections that share their input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Generic, Protocol, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.backends.llama.stored_matrix import StoredMatrix
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.quantization import QuantizedMatrix
from inference.checkpoints.weights import WeightsFile
from protocol.errors import BadModel

Matrix = Tensor | QuantizedMatrix | StoredMatrix
M_co = TypeVar("M_co", bound=Matrix, covariant=True)


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[M_co]):
    """One layer; projections that share their input are fused; [out, in] as in torch's linear."""

    attention_norm: Tensor  # [hidden]
    qkv: M_co  # [(heads + 2 * kv_heads) * head_dim, hidden]
    qkv_bias: Tensor | None  # [(heads + 2 * kv_heads) * head_dim]
    q_norm: Tensor | None  # [head_dim]
    k_norm: Tensor | None  # [head_dim]
    attention_out: M_co  # [hidden, heads * head_dim]
    attention_out_bias: Tensor | None  # [hidden]
    mlp_norm: Tensor  # [hidden]
    gate_up: M_co  # [2 * intermediate, hidden]
    gate_up_bias: Tensor | None  # [2 * intermediate]
    down: M_co  # [hidden, intermediate]
    down_bias: Tensor | None  # [hidden]


class WeightsSource(Protocol[M_co]):
    """All weights of a model, in memory (`DecoderWeights`) or read at each access (`StreamedWeights`)."""

    @property
    def embedding(self) -> M_co:
        """[vocabulary, hidden]."""

    @property
    def layers(self) -> Iterable[LayerWeights[M_co]]:
        """The layers in order."""

    @property
    def final_norm(self) -> Tensor:
        """[hidden]."""

    @property
    def head(self) -> M_co:
        """[vocabulary, hidden]; the embedding's values if tied."""


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a model in memory, of one dtype and on one device."""

    embedding: Tensor  # [vocabulary, hidden]
    layers: tuple[LayerWeights[Tensor], ...]
    final_norm: Tensor  # [hidden]
    head: Tensor  # [vocabulary, hidden]; the embedding itself if tied

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; a head that is the embedding counts once."""
        layered = [getattr(layer, field.name) for layer in self.layers for field in fields(layer)]
        tensors = {id(tensor): tensor for tensor in (self.embedding, self.head, self.final_norm, *layered)}
        return sum(tensor.nbytes for tensor in tensors.values() if tensor is not None)


class WeightsReader(Protocol[M_co]):
    """Reads a checkpoint's tensors by their Hugging Face names; BadModel if one is missing or has another shape."""

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a tensor of this name."""

    def vector(self, name: str, count: int) -> Tensor:
        """[count], of a floating dtype."""

    def matrix(self, rows: Mapping[str, int], columns: int) -> M_co:
        """The matrices of these names and numbers of rows, one below the other: [sum of rows, columns]."""


_NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # others need the scales of a quantization


class TensorReader:
    """Implements `WeightsReader` for safetensors files."""

    def __init__(self, files: Sequence[WeightsFile], dtype: torch.dtype | None, device: torch.device) -> None:
        """dtype: of the tensors that are returned; None keeps that of the file."""
        self._file_of = {name: file.path for file in files for name in file.tensors}
        self._dtype = dtype
        self._device = device

    def has(self, name: str) -> bool:
        return name in self._file_of

    def vector(self, name: str, count: int) -> Tensor:
        return self._read(name, count)

    def matrix(self, rows: Mapping[str, int], columns: int) -> Tensor:
        tensors = [self._read(name, count, columns) for name, count in rows.items()]
        return tensors[0] if len(tensors) == 1 else torch.cat(tensors)

    def _read(self, name: str, *shape: int) -> Tensor:
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


class StreamedWeights(Generic[M_co]):
    """Implements `WeightsSource`: reads the weights at each access and keeps none, so that memory holds one layer."""

    def __init__(
        self, architecture: Architecture, reader: WeightsReader[M_co], progress: Callable[[float], None]
    ) -> None:
        """progress: receives the share of the layers read so far, 0..1."""
        self._architecture = architecture
        self._reader = reader
        self._progress = progress

    @property
    def embedding(self) -> M_co:
        return self._vocabulary_matrix("model.embed_tokens.weight")

    @property
    def layers(self) -> Iterator[LayerWeights[M_co]]:
        for index in range(self._architecture.layers):
            yield _read_layer(self._architecture, self._reader, f"model.layers.{index}")
            self._progress((index + 1) / self._architecture.layers)

    @property
    def final_norm(self) -> Tensor:
        return self._reader.vector("model.norm.weight", self._architecture.hidden)

    @property
    def head(self) -> M_co:
        return self.embedding if self._architecture.tied_embeddings else self._vocabulary_matrix("lm_head.weight")

    def _vocabulary_matrix(self, name: str) -> M_co:
        return self._reader.matrix({name: self._architecture.vocabulary}, self._architecture.hidden)


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


def _read_layer(architecture: Architecture, reader: WeightsReader[M_co], name: str) -> LayerWeights[M_co]:
    hidden, inner, head_dim = architecture.hidden, architecture.intermediate, architecture.head_dim
    query, shared = architecture.heads * head_dim, architecture.kv_heads * head_dim
    attention, mlp = f"{name}.self_attn", f"{name}.mlp"
    qkv = {f"{attention}.q_proj": query, f"{attention}.k_proj": shared, f"{attention}.v_proj": shared}
    out, down = {f"{attention}.o_proj": hidden}, {f"{mlp}.down_proj": hidden}
    gate_up = {f"{mlp}.gate_proj": inner, f"{mlp}.up_proj": inner}
    qk_norm = architecture.qk_norm
    return LayerWeights(
        attention_norm=reader.vector(f"{name}.input_layernorm.weight", hidden),
        qkv=_weight(reader, qkv, hidden),
        qkv_bias=_bias(reader, qkv),
        q_norm=reader.vector(f"{attention}.q_norm.weight", head_dim) if qk_norm else None,
        k_norm=reader.vector(f"{attention}.k_norm.weight", head_dim) if qk_norm else None,
        attention_out=_weight(reader, out, query),
        attention_out_bias=_bias(reader, out),
        mlp_norm=reader.vector(f"{name}.post_attention_layernorm.weight", hidden),
        gate_up=_weight(reader, gate_up, hidden),
        gate_up_bias=_bias(reader, gate_up),
        down=_weight(reader, down, inner),
        down_bias=_bias(reader, down),
    )


def _weight(reader: WeightsReader[M_co], modules: Mapping[str, int], columns: int) -> M_co:
    """The projections of `modules`, one below the other: [sum of rows, columns]."""
    return reader.matrix({f"{name}.weight": count for name, count in modules.items()}, columns)


def _bias(reader: WeightsReader[M_co], modules: Mapping[str, int]) -> Tensor | None:
    """Their biases; None if they have none."""
    if not any(reader.has(f"{name}.bias") for name in modules):
        return None
    return torch.cat([reader.vector(f"{name}.bias", count) for name, count in modules.items()])

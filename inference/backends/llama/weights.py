"""The decoder's weights: reads them from safetensors or GGUF files, and fuses projections that share their input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.checkpoints.architecture import Architecture, DeltaRule
from inference.checkpoints.gguf import blocks as gguf_blocks
from inference.checkpoints.quantization import QuantizedMatrix, quantize
from inference.checkpoints.weights import QuantizedType, StoredTensor, WeightsFile, common_type
from protocol.errors import BadModel

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
        stored = np.fromfile(self.path, np.uint8, (last + 1 - first) * size, offset=self.tensor.start + first * size).reshape(
            -1, size
        )[places - first]
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

    def by_type(self) -> list[StoredMatrix]:
        """The matrix, cut where the type of its tensors changes."""
        runs = groupby(self._parts, lambda part: common_type({part.tensor.kernel_type}))
        return [StoredMatrix(tuple(parts)) for _, parts in runs]

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
        zeros = quantize(torch.zeros(count, self.shape[1]), "centred_int4")
        return zeros if self.type == "centred_int4" else zeros.as_type(self.type)


Matrix = Tensor | QuantizedMatrix | StoredMatrix
M_co = TypeVar("M_co", bound=Matrix, covariant=True)


@dataclass(frozen=True, slots=True)
class DeltaWeights(Generic[M_co]):
    """What a layer with the gated delta rule has besides."""

    rates: M_co  # [2 * value_heads, hidden]: of the learning rates, and of the decays
    decay: Tensor  # [value_heads], below 0: what a decay's logarithm is multiplied with
    decay_bias: Tensor  # [value_heads]
    norm: Tensor  # [value_dim]


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[M_co]):
    """One layer; projections that share their input are fused; [out, in] as in torch's linear."""

    attention_norm: Tensor  # [hidden]
    qkv: M_co  # [query_rows + 2 * kv_heads * head_dim, hidden]
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
    # of recurrent layers, whose `qkv` and `attention_out` are the matrices before and behind what they do
    taps: Tensor | None = None  # [channels, kept_inputs + 1]: a convolution's, the newest input's last
    delta: DeltaWeights[M_co] | None = None


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

    def taps(self, name: str, channels: int, width: int) -> Tensor:
        """[channels, width] of a convolution of every channel by itself, the newest input's last."""


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


class StreamedWeights(Generic[M_co]):
    """Implements `WeightsSource`: reads the weights at each access and keeps none, so that memory holds one layer."""

    def __init__(self, architecture: Architecture, reader: WeightsReader[M_co], progress: Callable[[float], None]) -> None:
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
            yield _read_layer(self._architecture, self._reader, index)
            self._progress((index + 1) / self._architecture.layers)

    @property
    def final_norm(self) -> Tensor:
        return _norm(self._architecture, self._reader, "model.norm", self._architecture.hidden)

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


def _read_layer(architecture: Architecture, reader: WeightsReader[M_co], index: int) -> LayerWeights[M_co]:
    name, kind = f"model.layers.{index}", architecture.kind_of(index)
    hidden, inner, head_dim = architecture.hidden, architecture.intermediate, architecture.head_dim
    attended, shared = architecture.heads * head_dim, architecture.kv_heads * head_dim
    attention, mlp, rule = f"{name}.self_attn", f"{name}.mlp", architecture.delta
    qkv = {f"{attention}.q_proj": architecture.query_rows}
    qkv |= dict.fromkeys((f"{attention}.k_proj", f"{attention}.v_proj"), shared)
    out, down = {f"{attention}.o_proj": hidden}, {f"{mlp}.down_proj": hidden}
    taps, delta, width = None, None, architecture.kept_inputs + 1
    if kind == "convolution":
        qkv, out, attended = {f"{name}.conv.in_proj": 3 * hidden}, {f"{name}.conv.out_proj": hidden}, hidden
        taps = reader.taps(f"{name}.conv.conv.weight", hidden, width)
    elif kind == "delta" and rule is not None:
        linear, attended = f"{name}.linear_attn", rule.value_heads * rule.value_dim
        qkv = {f"{linear}.in_proj_qkv": rule.channels, f"{linear}.in_proj_z": attended}
        out = {f"{linear}.out_proj": hidden}
        taps = reader.taps(f"{linear}.conv1d.weight", rule.channels, width)
        delta = _read_delta(rule, reader, linear, hidden)
    gate_up = {f"{mlp}.gate_proj": inner, f"{mlp}.up_proj": inner}
    has_norms = architecture.qk_norm and kind == "attention"
    return LayerWeights(
        attention_norm=_norm(architecture, reader, f"{name}.input_layernorm", hidden),
        qkv=_weight(reader, qkv, hidden),
        qkv_bias=_bias(reader, qkv),
        q_norm=_norm(architecture, reader, f"{attention}.q_norm", head_dim) if has_norms else None,
        k_norm=_norm(architecture, reader, f"{attention}.k_norm", head_dim) if has_norms else None,
        attention_out=_weight(reader, out, attended),
        attention_out_bias=_bias(reader, out),
        mlp_norm=_norm(architecture, reader, f"{name}.post_attention_layernorm", hidden),
        gate_up=_weight(reader, gate_up, hidden),
        gate_up_bias=_bias(reader, gate_up),
        down=_weight(reader, down, inner),
        down_bias=_bias(reader, down),
        taps=taps,
        delta=delta,
    )


def _read_delta(rule: DeltaRule, reader: WeightsReader[M_co], name: str, hidden: int) -> DeltaWeights[M_co]:
    heads, logarithm = rule.value_heads, f"{name}.A_log"
    is_log = reader.has(logarithm)
    return DeltaWeights(
        rates=_weight(reader, {f"{name}.in_proj_b": heads, f"{name}.in_proj_a": heads}, hidden),
        decay=-reader.vector(logarithm, heads).float().exp() if is_log else reader.vector(f"{name}.A", heads),
        decay_bias=reader.vector(f"{name}.dt_bias", heads),
        norm=reader.vector(f"{name}.norm.weight", rule.value_dim),
    )


def _norm(architecture: Architecture, reader: WeightsReader[M_co], name: str, count: int) -> Tensor:
    weight, offset = reader.vector(f"{name}.weight", count), architecture.norm_offset
    return weight.float() + offset if offset else weight


def _weight(reader: WeightsReader[M_co], modules: Mapping[str, int], columns: int) -> M_co:
    """The projections of `modules`, one below the other: [sum of rows, columns]."""
    return reader.matrix({f"{name}.weight": count for name, count in modules.items()}, columns)


def _bias(reader: WeightsReader[M_co], modules: Mapping[str, int]) -> Tensor | None:
    """Their biases; None if they have none."""
    if not any(reader.has(f"{name}.bias") for name in modules):
        return None
    return torch.cat([reader.vector(f"{name}.bias", count) for name, count in modules.items()])


_STAYING: Mapping[QuantizedType | None, Set[QuantizedType | None]] = {
    None: {*get_args(QuantizedType), None},
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

    def taps(self, name: str, channels: int, width: int) -> Tensor:
        return self._tensor(*self._open(name, channels, width))

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

        llama.cpp has them side by side for the architectures `llama` and `granite`.
        """
        if self._architecture.model_type not in ("llama", "granite") or not name.endswith(_TURNED):
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

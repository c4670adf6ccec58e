"""The weights of a model of the Llama family, layer by layer: reads them by their names, and fuses what shares its input.

A vector is a tensor, or an array of NumPy's, as the reader returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from inference.checkpoints.architecture import Architecture, DeltaRule
from inference.checkpoints.weights import NUMBERS, StoredTensor, WeightsFile
from protocol.errors import BadModel

Vector = Any  # of torch or NumPy
M_co = TypeVar("M_co", covariant=True)
"""A matrix as the reader returns it: a tensor, or what the CPU kernel packs."""


@dataclass(frozen=True, slots=True)
class DeltaWeights(Generic[M_co]):
    """What a layer with the gated delta rule has besides."""

    rates: M_co  # [2 * value_heads, hidden]: of the learning rates, and of the decays
    decay: Vector  # [value_heads], below 0: what a decay's logarithm is multiplied with
    decay_bias: Vector  # [value_heads]
    norm: Vector  # [value_dim]


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[M_co]):
    """One layer; projections that share their input are fused; [out, in] as in torch's linear."""

    attention_norm: Vector  # [hidden]
    qkv: M_co  # [query_rows + 2 * kv_heads * head_dim, hidden]
    qkv_bias: Vector | None  # [(heads + 2 * kv_heads) * head_dim]
    q_norm: Vector | None  # [head_dim]
    k_norm: Vector | None  # [head_dim]
    attention_out: M_co  # [hidden, heads * head_dim]
    attention_out_bias: Vector | None  # [hidden]
    mlp_norm: Vector  # [hidden]
    gate_up: M_co  # [2 * intermediate, hidden]; half as many rows without a gate
    gate_up_bias: Vector | None  # as many
    down: M_co  # [hidden, intermediate]
    down_bias: Vector | None  # [hidden]
    attention_norm_bias: Vector | None = None  # [hidden], of a LayerNorm
    mlp_norm_bias: Vector | None = None  # [hidden]
    # of recurrent layers, whose `qkv` and `attention_out` are the matrices before and behind what they do
    taps: Vector | None = None  # [channels, kept_inputs + 1]: a convolution's, the newest input's last
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
    def final_norm(self) -> Vector:
        """[hidden]."""

    @property
    def final_norm_bias(self) -> Vector | None:
        """[hidden], of a LayerNorm."""

    @property
    def head(self) -> M_co:
        """[vocabulary, hidden]; the embedding's values if tied."""


class WeightsReader(Protocol[M_co]):
    """Reads a checkpoint's tensors by their Hugging Face names; BadModel if one is missing or has another shape."""

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a tensor of this name."""

    def vector(self, name: str, count: int) -> Vector:
        """[count], of a floating dtype."""

    def vectors(self, counts: Mapping[str, int]) -> Vector:
        """Several vectors as one: [sum of counts]."""

    def matrix(self, rows: Mapping[str, int], columns: int) -> M_co:
        """The matrices of these names and numbers of rows, one below the other: [sum of rows, columns]."""

    def taps(self, name: str, channels: int, width: int) -> Vector:
        """[channels, width] of a convolution of every channel by itself, the newest input's last."""


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
    def final_norm(self) -> Vector:
        return _norm(self._architecture, self._reader, "model.norm", self._architecture.hidden)

    @property
    def final_norm_bias(self) -> Vector | None:
        return _norm_bias(self._architecture, self._reader, "model.norm", self._architecture.hidden)

    @property
    def head(self) -> M_co:
        return self.embedding if self._architecture.tied_embeddings else self._vocabulary_matrix("lm_head.weight")

    def _vocabulary_matrix(self, name: str) -> M_co:
        return self._reader.matrix({name: self._architecture.vocabulary}, self._architecture.hidden)


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
    gate_up = dict.fromkeys([*([f"{mlp}.gate_proj"] if architecture.gated_mlp else []), f"{mlp}.up_proj"], inner)
    has_norms = architecture.qk_norm and kind == "attention"
    before, between = f"{name}.input_layernorm", f"{name}.post_attention_layernorm"
    return LayerWeights(
        attention_norm=_norm(architecture, reader, before, hidden),
        attention_norm_bias=_norm_bias(architecture, reader, before, hidden),
        qkv=_weight(reader, qkv, hidden),
        qkv_bias=_bias(reader, qkv),
        q_norm=_norm(architecture, reader, f"{attention}.q_norm", head_dim) if has_norms else None,
        k_norm=_norm(architecture, reader, f"{attention}.k_norm", head_dim) if has_norms else None,
        attention_out=_weight(reader, out, attended),
        attention_out_bias=_bias(reader, out),
        mlp_norm=_norm(architecture, reader, between, hidden),
        mlp_norm_bias=_norm_bias(architecture, reader, between, hidden),
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
        decay=-np.exp(_widened(reader.vector(logarithm, heads))) if is_log else reader.vector(f"{name}.A", heads),
        decay_bias=reader.vector(f"{name}.dt_bias", heads),
        norm=reader.vector(f"{name}.norm.weight", rule.value_dim),
    )


def _norm(architecture: Architecture, reader: WeightsReader[M_co], name: str, count: int) -> Vector:
    weight, offset = reader.vector(f"{name}.weight", count), architecture.norm_offset
    return _widened(weight) + offset if offset else weight


def _widened(vector: Vector) -> Vector:
    """The vector in float32."""
    return vector.astype(np.float32) if isinstance(vector, np.ndarray) else vector.float()


def _norm_bias(architecture: Architecture, reader: WeightsReader[M_co], name: str, count: int) -> Vector | None:
    return reader.vector(f"{name}.bias", count) if architecture.norm_biases else None


def _weight(reader: WeightsReader[M_co], modules: Mapping[str, int], columns: int) -> M_co:
    """The projections of `modules`, one below the other: [sum of rows, columns]."""
    return reader.matrix({f"{name}.weight": count for name, count in modules.items()}, columns)


def _bias(reader: WeightsReader[M_co], modules: Mapping[str, int]) -> Vector | None:
    """Their biases; None if they have none."""
    if not any(reader.has(f"{name}.bias") for name in modules):
        return None
    return reader.vectors({f"{name}.bias": count for name, count in modules.items()})


class FileTensors:
    """The tensors of a checkpoint's files by their Hugging Face names; of safetensors files, unless a subclass says more."""

    between_taps: tuple[int, ...] = (1,)
    """What stands between channels and width in the shape of a convolution's taps."""

    def __init__(self, files: Sequence[WeightsFile], stored_name: Callable[[str], str] = str) -> None:
        """stored_name: of ours, in the file."""
        self._stored = {name: (file, tensor) for file in files for name, tensor in file.tensors.items()}
        self._stored_name = stored_name

    def has(self, name: str) -> bool:
        return self._stored_name(name) in self._stored

    def find(self, name: str, *shape: int) -> tuple[WeightsFile, StoredTensor]:
        """The file that has the tensor of this name; BadModel if none has, or if it has another shape or no weights' type."""
        name = self._stored_name(name)
        if name not in self._stored:
            raise BadModel(f"the checkpoint has no tensor {name!r}: it is incomplete, or of another architecture")
        file, tensor = self._stored[name]
        if tensor.shape != shape:
            raise BadModel(f"{file.path}: {name} has the shape {tensor.shape}, and the model's fields say {shape}")
        if tensor.kernel_type is None and tensor.type_name not in NUMBERS:
            raise BadModel(f"{file.path}: {name} is of the type {tensor.type_name}, expected {', '.join(NUMBERS)}")
        return file, tensor

    def order(self, name: str, rows: int) -> NDArray[np.int64]:  # noqa: ARG002 - by which a GGUF file turns some
        """By row of the matrix or vector, the row of the file."""
        return np.arange(rows)


_TURNED = (".q_proj.weight", ".k_proj.weight", ".q_proj.bias", ".k_proj.bias")


class GgufTensors(FileTensors):
    """The tensors of GGUF files, whose names are given as Hugging Face's."""

    between_taps = ()

    def __init__(self, files: Sequence[WeightsFile], architecture: Architecture) -> None:
        super().__init__(files)
        self._architecture = architecture

    def order(self, name: str, rows: int) -> NDArray[np.int64]:
        """The rows of queries and keys as our RoPE wants them, whose pairs lie half a head apart.

        llama.cpp has them side by side for the architectures `llama` and `granite`.
        """
        if self._architecture.model_type not in ("llama", "granite") or not name.endswith(_TURNED):
            return super().order(name, rows)
        heads = rows // self._architecture.head_dim
        return np.arange(rows).reshape(heads, -1, 2).transpose(0, 2, 1).reshape(-1)

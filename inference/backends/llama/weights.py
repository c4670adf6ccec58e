"""Reads the decoder's weights from a Hugging Face checkpoint and fuses projections that share their input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inference.checkpoints.architecture import Architecture
from inference.checkpoints.weights import WeightsFile
from protocol.errors import BadModel


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; projections that share their input are fused; [out, in] as in torch's linear."""

    attention_norm: Tensor  # [hidden]
    qkv: Tensor  # [(heads + 2 * kv_heads) * head_dim, hidden]
    qkv_bias: Tensor | None  # [(heads + 2 * kv_heads) * head_dim]
    q_norm: Tensor | None  # [head_dim]
    k_norm: Tensor | None  # [head_dim]
    attention_out: Tensor  # [hidden, heads * head_dim]
    attention_out_bias: Tensor | None  # [hidden]
    mlp_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 * intermediate, hidden]
    gate_up_bias: Tensor | None  # [2 * intermediate]
    down: Tensor  # [hidden, intermediate]
    down_bias: Tensor | None  # [hidden]


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a model, of one dtype and on one device."""

    embedding: Tensor  # [vocabulary, hidden]
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor  # [hidden]
    head: Tensor  # [vocabulary, hidden]; the embedding itself if tied


class TensorReader:
    """Reads a checkpoint's tensors by name, in the dtype and onto the device of the decoder."""

    def __init__(self, files: Sequence[WeightsFile], dtype: torch.dtype, device: torch.device) -> None:
        self._file_of = {name: file.path for file in files for name in file.tensors}
        self._dtype = dtype
        self._device = device

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a tensor of this name."""
        return name in self._file_of

    def read(self, name: str, *shape: int) -> Tensor:
        """The tensor; BadModel if it is missing or has another shape."""
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
        return tensor.to(self._device, self._dtype)


def read_decoder_weights(
    architecture: Architecture, reader: TensorReader, progress: Callable[[float], None]
) -> DecoderWeights:
    """All weights of a checkpoint; `progress` receives the share read so far, 0..1."""
    shape = (architecture.vocabulary, architecture.hidden)
    embedding = reader.read("model.embed_tokens.weight", *shape)
    layers = []
    for index in range(architecture.layers):
        layers.append(_read_layer(architecture, reader, f"model.layers.{index}"))
        progress((index + 1) / architecture.layers)
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(layers),
        final_norm=reader.read("model.norm.weight", architecture.hidden),
        head=embedding if architecture.tied_embeddings else reader.read("lm_head.weight", *shape),
    )


def _read_layer(architecture: Architecture, reader: TensorReader, name: str) -> LayerWeights:
    hidden, inner, head_dim = architecture.hidden, architecture.intermediate, architecture.head_dim
    query, shared = architecture.heads * head_dim, architecture.kv_heads * head_dim
    qkv_rows = {"q_proj": query, "k_proj": shared, "v_proj": shared}
    attention, mlp = f"{name}.self_attn", f"{name}.mlp"
    qk_norm = architecture.qk_norm
    return LayerWeights(
        attention_norm=reader.read(f"{name}.input_layernorm.weight", hidden),
        qkv=_fused(reader, attention, qkv_rows, hidden),
        qkv_bias=_fused_bias(reader, attention, qkv_rows),
        q_norm=reader.read(f"{attention}.q_norm.weight", head_dim) if qk_norm else None,
        k_norm=reader.read(f"{attention}.k_norm.weight", head_dim) if qk_norm else None,
        attention_out=_fused(reader, attention, {"o_proj": hidden}, query),
        attention_out_bias=_fused_bias(reader, attention, {"o_proj": hidden}),
        mlp_norm=reader.read(f"{name}.post_attention_layernorm.weight", hidden),
        gate_up=_fused(reader, mlp, {"gate_proj": inner, "up_proj": inner}, hidden),
        gate_up_bias=_fused_bias(reader, mlp, {"gate_proj": inner, "up_proj": inner}),
        down=_fused(reader, mlp, {"down_proj": hidden}, inner),
        down_bias=_fused_bias(reader, mlp, {"down_proj": hidden}),
    )


def _fused(reader: TensorReader, module: str, rows: dict[str, int], columns: int) -> Tensor:
    """The projections of `rows`, one below the other: [sum of rows, columns]."""
    return torch.cat([reader.read(f"{module}.{name}.weight", count, columns) for name, count in rows.items()])


def _fused_bias(reader: TensorReader, module: str, rows: dict[str, int]) -> Tensor | None:
    """Their biases; None if they have none."""
    if not any(reader.has(f"{module}.{name}.bias") for name in rows):
        return None
    return torch.cat([reader.read(f"{module}.{name}.bias", count) for name, count in rows.items()])

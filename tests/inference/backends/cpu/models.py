"""Small models with random weights, their tables and workspaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.backends.cpu.decoder import KernelDecoder
from inference.backends.cpu.library import Level
from inference.backends.cpu.packing import WeightType
from inference.backends.layer_weights import LayerWeights
from inference.backends.llama.decoder import rotation_tables
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Chunk
from inference.checkpoints.architecture import Architecture
from kv_store.interface import Workspace
from kv_store.main_memory import ArrayWorkspace, KVShape
from kv_store.workspace import KVWorkspace
from tests.inference.backends.cpu.fallback import FallbackDecoder

POSITIONS = 400


@dataclass(frozen=True)
class Shape:
    """What a test varies."""

    layers: int = 2
    hidden: int = 64
    intermediate: int = 96
    kv_heads: int = 2
    group: int = 2
    head_dim: int = 32
    vocabulary: int = 130
    biases: bool = False
    qk_norm: bool = False
    tied: bool = False
    scaled: bool = False

    @property
    def architecture(self) -> Architecture:
        return Architecture(
            model_type="qwen3",
            layers=self.layers,
            hidden=self.hidden,
            intermediate=self.intermediate,
            heads=self.kv_heads * self.group,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            vocabulary=self.vocabulary,
            norm_epsilon=1e-6,
            max_positions=POSITIONS,
            tied_embeddings=self.tied,
            qk_norm=self.qk_norm,
            rope_theta=10000.0,
            rope_type="default",
            attention_scale=0.09 if self.scaled else self.head_dim**-0.5,
            embedding_scale=3.0 if self.scaled else 1.0,
            residual_scale=0.22 if self.scaled else 1.0,
            logits_scale=1 / 6 if self.scaled else 1.0,
        )


class RandomModel:
    """Weights of a shape, the same for the same seed."""

    def __init__(self, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self.architecture = shape.architecture
        self._generator = torch.Generator().manual_seed(seed)
        self._shape = shape
        self._dtype = dtype
        embedding = self._matrix(shape.vocabulary, shape.hidden) * shape.hidden**0.5
        self.weights = DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer() for _ in range(shape.layers)),
            final_norm=self._norm(shape.hidden),
            head=embedding if shape.tied else self._matrix(shape.vocabulary, shape.hidden),
        )
        self.tables = rotation_tables(self.architecture, {}, POSITIONS, torch.float32, torch.device("cpu"))

    def kernel(self, weight_type: WeightType = "float32", threads: int = 1, level: Level | None = None) -> KernelDecoder:
        return KernelDecoder(self.architecture, self.weights, self.tables, weight_type, threads, level)

    def fallback(self, weight_type: WeightType = "float32") -> FallbackDecoder:
        return FallbackDecoder(self.architecture, self.weights, self.tables, weight_type)

    def workspace(self, dtype: torch.dtype = torch.float32, max_tokens: int = POSITIONS) -> KVWorkspace:
        shape = self.architecture
        return KVWorkspace(KVShape(shape.layers, shape.kv_heads, shape.head_dim, str(dtype).removeprefix("torch.")), max_tokens)

    def resident(self, workspace: KVWorkspace, tokens: int, seed: int = 1) -> None:
        """Random KV as that of the first `tokens` tokens."""
        generator = torch.Generator().manual_seed(seed)
        workspace.buffer[:, :, :, :tokens].normal_(generator=generator)

    def token_ids(self, count: int, seed: int = 2) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        ids: list[int] = torch.randint(self.architecture.vocabulary, (count,), generator=generator).tolist()
        return ids

    def _layer(self) -> LayerWeights:
        shape, architecture = self._shape, self.architecture
        qkv = (architecture.heads + 2 * architecture.kv_heads) * architecture.head_dim
        return LayerWeights(
            attention_norm=self._norm(shape.hidden),
            qkv=self._matrix(qkv, shape.hidden),
            qkv_bias=self._bias(qkv),
            q_norm=self._norm(shape.head_dim) if shape.qk_norm else None,
            k_norm=self._norm(shape.head_dim) if shape.qk_norm else None,
            attention_out=self._matrix(shape.hidden, architecture.heads * shape.head_dim),
            attention_out_bias=self._bias(shape.hidden),
            mlp_norm=self._norm(shape.hidden),
            gate_up=self._matrix(2 * shape.intermediate, shape.hidden),
            gate_up_bias=self._bias(2 * shape.intermediate),
            down=self._matrix(shape.hidden, shape.intermediate),
            down_bias=self._bias(shape.hidden),
        )

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator)

    def _matrix(self, rows: int, columns: int) -> Tensor:
        return (self._random(rows, columns) / columns**0.5).to(self._dtype)

    def _norm(self, count: int) -> Tensor:
        return (1 + 0.1 * self._random(count)).to(self._dtype)

    def _bias(self, count: int) -> Tensor | None:
        return (0.1 * self._random(count)).to(self._dtype) if self._shape.biases else None


def forward(decoder: KernelDecoder | FallbackDecoder, chunks: Sequence[Chunk]) -> list[Tensor]:
    """The logits of each chunk as tensors."""
    return [torch.as_tensor(rows) for rows in decoder.forward(chunks)]


def buffer_of(workspace: Workspace) -> Tensor:
    """The KV of a workspace in main memory, as a tensor."""
    if isinstance(workspace, KVWorkspace):
        return workspace.buffer
    assert isinstance(workspace, ArrayWorkspace)
    bits = {2: "int16", 4: "int32"}[workspace.shape.item_bytes]
    return torch.from_numpy(workspace.bits.view(bits)).view(getattr(torch, workspace.shape.dtype))


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Weights with all their tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: mapped(getattr(value, field.name), change) for field in fields(value)})
    return value

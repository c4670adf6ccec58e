"""The shapes of the models that benches without a checkpoint run, and random weights for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from inference.backends.llama.weights import DecoderWeights, LayerWeights
from inference.checkpoints.architecture import Architecture


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's dimensions; head_dim is 64 for all."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def architecture(self) -> Architecture:
        return Architecture(
            model_type="qwen2",
            layers=self.layers,
            hidden=self.hidden,
            intermediate=self.intermediate,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=64,
            vocabulary=self.vocabulary,
            norm_epsilon=1e-6,
            max_positions=4096,
            tied_embeddings=True,
            qk_norm=False,
            rope_theta=10000.0,
            rope_type="default",
        )


SHAPES = {
    "tiny": Shape(1, 64, 64, 1, 1, 8192),
    "S": Shape(8, 320, 864, 5, 1, 8192),
    "M": Shape(12, 512, 1408, 8, 2, 8192),
    "SmolLM2": Shape(30, 576, 1536, 9, 3, 49152),
    "L": Shape(24, 896, 4864, 14, 2, 151936),  # of Qwen2.5-Coder-0.5B
}


def random_weights(shape: Architecture) -> DecoderWeights:
    """bfloat16 weights of about the magnitude of trained ones."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=torch.bfloat16).normal_(std=columns**-0.5)

    def ones(count: int) -> torch.Tensor:
        return torch.ones(count, dtype=torch.bfloat16)

    attended, qkv = shape.heads * shape.head_dim, (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    embedding = matrix(shape.vocabulary, shape.hidden)
    layers = tuple(
        LayerWeights(
            attention_norm=ones(shape.hidden),
            qkv=matrix(qkv, shape.hidden),
            qkv_bias=ones(qkv),
            q_norm=None,
            k_norm=None,
            attention_out=matrix(shape.hidden, attended),
            attention_out_bias=None,
            mlp_norm=ones(shape.hidden),
            gate_up=matrix(2 * shape.intermediate, shape.hidden),
            gate_up_bias=None,
            down=matrix(shape.hidden, shape.intermediate),
            down_bias=None,
        )
        for _ in range(shape.layers)
    )
    return DecoderWeights(embedding, layers, ones(shape.hidden), embedding)

"""Quantizes weights to 8 bits on a GPU: torchao quantizes them and provides the decoder's `linear` for them.

int8 quantizes each row of a matrix to integers and widens the whole matrix for every product: it saves memory, not
time. fp8 quantizes the rows of both factors to float8 (e4m3), which GPUs since Ada multiply directly: it saves both.
Neither waits for the GPU nor reads values on the host, so CUDA graphs can record both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from inference.backends.layer_weights import LayerWeights
from inference.backends.llama.weights import DecoderWeights
from protocol.errors import BadInput
from protocol.settings import Weights

Quantize = Callable[[Tensor], Tensor]

M = TypeVar("M")

MATRICES = ("qkv", "attention_out", "gate_up", "down")
FP8_SIDES = 16  # torch._scaled_mm requires sides that are multiples of it
LEAST_MAGNITUDE = 1e-12  # lower bound of a row's largest magnitude: avoids 0/0 for rows of zeros


def quantized(weights: DecoderWeights, scheme: Weights, device: torch.device) -> DecoderWeights:
    """The weights on `device`, with the matrices quantized there one by one; the rest is unchanged.

    If they come from main memory, the device never holds more than one unquantized matrix. In int8 a tied head stays
    the embedding: quantized, it would be a second copy and save nothing. fp8 makes that copy, for speed.
    """
    try:
        import torchao.quantization  # noqa: F401 - it refuses a torch that is too old
    except ImportError as error:
        raise BadInput(f"{scheme} weights on a GPU need torchao>=0.18, which cannot be imported: {error}") from error
    quantize = {"int8": _int8, "fp8": _fp8}[scheme]

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device)

    embedding = move(weights.embedding)
    tied = weights.head is weights.embedding
    head = embedding if tied else move(weights.head)
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(changed_layer(layer, lambda tensor: quantize(move(tensor)), move) for layer in weights.layers),
        final_norm=move(weights.final_norm),
        head=head if tied and scheme == "int8" else quantize(head),
    )


def changed_layer(
    layer: LayerWeights[M], quantize: Callable[[M], Tensor], move: Callable[[Tensor], Tensor]
) -> LayerWeights[Tensor]:
    """The layer with its matrices quantized, and its other tensors moved."""
    tensors: dict[str, Any] = {}
    for field in fields(LayerWeights):
        tensor = getattr(layer, field.name)
        tensors[field.name] = None if tensor is None else (quantize if field.name in MATRICES else move)(tensor)
    return LayerWeights(**tensors)


def _int8(matrix: Tensor) -> Tensor:
    from torchao.quantization import Int8Tensor, PerRow

    rounded: Tensor = Int8Tensor.from_hp(matrix, PerRow())
    return rounded


def _fp8(matrix: Tensor) -> Tensor:
    """The quantized matrix, or the matrix itself if its sides do not suit the product."""
    from torchao.quantization import Float8MMConfig, Float8Tensor, PerRow
    from torchao.quantization.quantize_.common import KernelPreference
    from torchao.quantization.quantize_.workflows import QuantizeTensorToFloat8Kwargs

    if any(side % FP8_SIDES for side in matrix.shape):
        return matrix
    kernel = KernelPreference.TORCH  # AUTO searches for another package at every product
    activations = QuantizeTensorToFloat8Kwargs(granularity=PerRow(), hp_value_lb=LEAST_MAGNITUDE, kernel_preference=kernel)
    rounded: Tensor = Float8Tensor.from_hp(
        matrix,
        granularity=PerRow(),
        hp_value_lb=LEAST_MAGNITUDE,
        mm_config=Float8MMConfig(use_fast_accum=True),
        kernel_preference=kernel,
        act_quant_kwargs=activations,
    )
    return rounded

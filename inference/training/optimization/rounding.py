"""Rounds weights to what GGUF's quantized types can hold, for training through them."""

import torch
from torch import Tensor

from inference.training.options import Quantization

GROUP = 32


def round_trip(weights: Tensor, kind: str) -> Tensor:
    """What is left of float32 `weights` [..., C], C a multiple of 32, after quantization to a type of GGUF.

    Scales and minima are float16, computed as gguf's own quantization does.
    """
    groups = weights.reshape(-1, GROUP)
    if kind == "q8_0":
        scale = groups.abs().amax(1, keepdim=True) / 127
        rounded = (groups * _inverse(scale)).round() * _half(scale)
    elif kind in ("q4_0", "q5_0"):
        levels = 8 if kind == "q4_0" else 16
        scale = groups.gather(1, groups.abs().argmax(1, keepdim=True)) / -levels
        codes = (groups * _inverse(scale) + (levels + 0.5)).trunc().clamp(0, 2 * levels - 1)
        rounded = (codes - levels) * _half(scale)
    else:
        steps = {"q4_1": 15, "q5_1": 31}[kind]
        least = groups.amin(1, keepdim=True)
        scale = (groups.amax(1, keepdim=True) - least) / steps
        codes = ((groups - least) * _inverse(scale) + 0.5).trunc().clamp(0, steps)
        rounded = codes * _half(scale) + _half(least)
    return rounded.view_as(weights)


def kind_of(name: str, weights: Tensor, quantization: Quantization) -> str | None:
    """The type that a parameter is quantized to; None for what stays in float32."""
    if weights.ndim != 2 or weights.shape[1] % GROUP:
        return None
    return quantization.embeddings if "embed" in name or "lm_head" in name else quantization.matrices


def _inverse(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, 0.0, 1 / scale)


def _half(values: Tensor) -> Tensor:
    return values.half().float()

"""Rounds weights to what GGUF's quantized types can hold: as gguf does, or to the grids that lose the least."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midfill_lab.training.options import Quantization

GROUP = 32
LEVELS = {"q4_0": 16, "q4_1": 16, "q5_0": 32, "q5_1": 32}
"""Number of codes of each type that has a `Grid`: those of 4 and 5 bits."""
_SYMMETRIC = ("q4_0", "q5_0")
_SHARES = tuple(float(share) for share in np.linspace(0.76, 1.04, 15))
"""Shares of the widest scale to try: clipping an outlier often loses less than wider steps do."""


def round_trip(weights: Tensor, kind: str) -> Tensor:
    """What is left of float32 `weights` [..., C], C a multiple of 32, after quantization to a type of GGUF.

    Scales and minima are float16, computed as gguf's own quantization does.
    """
    groups = weights.reshape(-1, GROUP)
    if kind == "q8_0":
        scale = groups.abs().amax(1, keepdim=True) / 127
        rounded = (groups * _inverse(scale)).round() * _half(scale)
    elif kind in _SYMMETRIC:
        levels = LEVELS[kind] // 2
        scale = groups.gather(1, groups.abs().argmax(1, keepdim=True)) / -levels
        codes = (groups * _inverse(scale) + (levels + 0.5)).trunc().clamp(0, 2 * levels - 1)
        rounded = (codes - levels) * _half(scale)
    else:
        steps = LEVELS[kind] - 1
        least = groups.amin(1, keepdim=True)
        scale = (groups.amax(1, keepdim=True) - least) / steps
        codes = ((groups - least) * _inverse(scale) + 0.5).trunc().clamp(0, steps)
        rounded = codes * _half(scale) + _half(least)
    return rounded.view_as(weights)


@dataclass(frozen=True)
class Grid:
    """The values `least + code * scale` of each of N groups; scale and least, [N, 1], are float16 values in float32."""

    kind: str
    scale: Tensor
    least: Tensor

    def codes(self, weights: Tensor) -> Tensor:
        """The codes nearest to weights [N, C]."""
        return ((weights - self.least) * _inverse(self.scale)).round().clamp(0, LEVELS[self.kind] - 1)

    def values(self, codes: Tensor) -> Tensor:
        """The values of codes [N, C]."""
        return self.least + codes * self.scale

    def pack(self, codes: Tensor) -> NDArray[np.uint8]:
        """The bytes of GGUF's blocks for codes [N, 32]: [N, bytes]."""
        whole: NDArray[np.uint8] = codes.to(torch.uint8).numpy()
        halves = [self.scale] if self.kind in _SYMMETRIC else [self.scale, self.least]
        parts = [half.numpy().astype(np.float16).view(np.uint8) for half in halves]
        if LEVELS[self.kind] == 32:
            parts.append(np.packbits(whole > 15, axis=1, bitorder="little"))
        low = whole & np.uint8(15)
        parts.append(low[:, : GROUP // 2] | low[:, GROUP // 2 :] * np.uint8(16))
        return np.concatenate(parts, axis=1)


def best_grid(groups: Tensor, importance: Tensor, kind: str) -> Grid:
    """The grid of `kind`, one of `LEVELS`, with the least squared error on groups [N, 32].

    importance: factor of each column's squared error, [32].
    """
    best, least_error = _grid(groups, kind, 1.0), torch.full((len(groups), 1), float("inf"))
    for share in _SHARES:
        grid = _grid(groups, kind, share)
        error = ((grid.values(grid.codes(groups)) - groups).square() * importance).sum(1, keepdim=True)
        better = error < least_error
        least_error = torch.where(better, error, least_error)
        best = Grid(kind, torch.where(better, grid.scale, best.scale), torch.where(better, grid.least, best.least))
    return best


def kind_of(name: str, weights: Tensor, quantization: Quantization) -> str | None:
    """The type that a parameter is quantized to; None for what stays in float32."""
    if weights.ndim != 2 or weights.shape[1] % GROUP:
        return None
    return quantization.embeddings if "embed" in name or "lm_head" in name else quantization.matrices


def _grid(groups: Tensor, kind: str, share: float) -> Grid:
    levels = LEVELS[kind]
    if kind in _SYMMETRIC:  # the extreme weight gets code 0
        extreme = groups.gather(1, groups.abs().argmax(1, keepdim=True))
        scale = _half(extreme * (-2 * share / levels))
        return Grid(kind, scale, scale * (-levels // 2))
    least, most = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
    middle, reach = (least + most) / 2, (most - least) / 2 * share
    return Grid(kind, _half(2 * reach / (levels - 1)), _half(middle - reach))


def _inverse(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, 0.0, 1 / scale)


def _half(values: Tensor) -> Tensor:
    return values.half().float()

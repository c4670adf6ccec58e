"""Owns the values that a group of 32 weights can have in GGUF's types of 4 and 5 bits, and their bytes."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GROUP = 32
SHRINKS = tuple(float(share) for share in np.linspace(0.76, 1.04, 15))
"""Shares of the widest scale that are tried: to clip one outlier is often better than to widen the steps."""
LEVELS = {"q4_0": 16, "q4_1": 16, "q5_0": 32, "q5_1": 32}
"""Codes of each type that has grids."""
_SYMMETRIC = ("q4_0", "q5_0")


@dataclass(frozen=True)
class Grid:
    """The values `least + code * scale` of each of N groups; scale and least, [N, 1], are float16 values in float32."""

    kind: str
    scale: Tensor
    least: Tensor

    def codes(self, weights: Tensor) -> Tensor:
        """The codes nearest to weights [N, C]."""
        inverse = torch.where(self.scale == 0, 0.0, 1 / self.scale)
        return ((weights - self.least) * inverse).round().clamp(0, LEVELS[self.kind] - 1)

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
    """The grid of `kind`, one of 4 or 5 bits, with the least squared error on groups [N, 32].

    importance: of each column's error, [32].
    """
    best, least_error = _grid(groups, kind, 1.0), torch.full((len(groups), 1), float("inf"))
    for share in SHRINKS:
        grid = _grid(groups, kind, share)
        error = ((grid.values(grid.codes(groups)) - groups).square() * importance).sum(1, keepdim=True)
        better = error < least_error
        least_error = torch.where(better, error, least_error)
        best = Grid(kind, torch.where(better, grid.scale, best.scale), torch.where(better, grid.least, best.least))
    return best


def _grid(groups: Tensor, kind: str, share: float) -> Grid:
    levels = LEVELS[kind]
    if kind in _SYMMETRIC:  # the extreme weight gets code 0
        extreme = groups.gather(1, groups.abs().argmax(1, keepdim=True))
        scale = _half(extreme * (-2 * share / levels))
        return Grid(kind, scale, scale * (-levels // 2))
    least, most = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
    middle, reach = (least + most) / 2, (most - least) / 2 * share
    return Grid(kind, _half(2 * reach / (levels - 1)), _half(middle - reach))


def _half(values: Tensor) -> Tensor:
    return values.half().float()

"""Quantizes matrices to integers with a scale, and for int4 a minimum, per group of columns, as in GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.checkpoints.weights import QuantizedType, RoundedType

GROUP = 32  # columns that share a scale; half as many in int6
LARGEST_INT8, LARGEST_INT4 = 127, 15
CENTRES: Mapping[QuantizedType, int] = {"centred_int4": 8, "int6": 32}
"""The numbers that stand for zero, of unsigned types without minima."""
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)  # of a group's range; values beyond are clamped


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """int8: weight = number * scale, numbers from -127 to 127.

    int4, int5: weight = number * scale + minimum, numbers from 0 to 15, or to 31. centred_int4, int6: weight =
    (number - centre) * scale, numbers from 0 to 15 and a centre of 8, or to 63 and 32.
    """

    type: QuantizedType
    numbers: Tensor  # [rows, columns]: int8; uint8 for the other types
    scales: Tensor  # float16 [rows, columns / GROUP]; int6: [rows, 2 * columns / GROUP]
    minima: Tensor | None  # float16 [rows, columns / GROUP], for int4 and int5

    @property
    def shape(self) -> torch.Size:
        return self.numbers.shape

    def map(self, change: Callable[[Tensor], Tensor]) -> QuantizedMatrix:
        """The matrix with `change` applied to all its tensors."""
        minima = None if self.minima is None else change(self.minima)
        return QuantizedMatrix(self.type, change(self.numbers), change(self.scales), minima)

    def __getitem__(self, rows: slice) -> QuantizedMatrix:
        return self.map(lambda tensor: tensor[rows])

    def dequantized(self) -> Tensor:
        """float32 [rows, columns]."""
        centred = self.numbers.float() - CENTRES.get(self.type, 0)
        groups = centred.view(*self.scales.shape, -1) * self.scales.float().unsqueeze(2)
        if self.minima is not None:
            groups += self.minima.float().unsqueeze(2)
        return groups.flatten(1)


def quantize(weight: Tensor, to: RoundedType) -> QuantizedMatrix:
    """weight: [rows, columns] of any floating dtype, columns a multiple of GROUP."""
    groups = weight.float().reshape(len(weight), -1, GROUP)
    match to:
        case "int8":
            return _quantize_int8(groups)
        case "int4":
            return _quantize_int4(groups)
        case "centred_int4":
            return _quantize_centred_int4(groups)


def _quantize_int8(groups: Tensor) -> QuantizedMatrix:
    exact = groups.abs().amax(dim=2) / LARGEST_INT8
    near = exact.half()
    scales = torch.where(near.float() < exact, (near.view(torch.int16) + 1).view(torch.float16), near)
    divisors = torch.where(scales == 0, 1.0, scales.float())
    numbers = (groups / divisors.unsqueeze(2)).round().clamp(-LARGEST_INT8, LARGEST_INT8)
    return QuantizedMatrix("int8", numbers.flatten(1).to(torch.int8), scales, None)


def _quantize_int4(groups: Tensor) -> QuantizedMatrix:
    """Tries the ranges of SHRINKS, fits scale and minimum by least squares, and keeps the least squared error."""
    low, high = groups.amin(dim=2), groups.amax(dim=2)
    middle, half = (low + high) / 2, (high - low) / 2
    best: tuple[Tensor, Tensor, Tensor] | None = None
    least = torch.full_like(low, torch.inf)
    for shrink in SHRINKS:
        scales, minima = (2 * half * shrink / LARGEST_INT4), middle - half * shrink
        numbers = _nearest_int4(groups, scales, minima)
        scales, minima = (fitted.half() for fitted in _fit(groups, numbers, scales, minima))
        numbers = _nearest_int4(groups, scales.float(), minima.float())
        error = (numbers * scales.float().unsqueeze(2) + minima.float().unsqueeze(2) - groups).square().sum(dim=2)
        better = error < least
        least = torch.where(better, error, least)
        candidate = (numbers, scales, minima)
        best = candidate if best is None else _choose(better, candidate, best)
    assert best is not None
    numbers, scales, minima = best
    return QuantizedMatrix("int4", numbers.flatten(1).to(torch.uint8), scales, minima)


def _quantize_centred_int4(groups: Tensor) -> QuantizedMatrix:
    """The value farthest from zero gets the number 0, as in Q4_0: there is one more below the centre than above it."""
    farthest = groups.gather(2, groups.abs().argmax(dim=2, keepdim=True)).squeeze(2)
    centre = CENTRES["centred_int4"]
    scales = (farthest / -centre).half()
    numbers = _nearest_int4(groups, scales.float(), scales.float() * -centre)
    numbers = torch.where(scales.unsqueeze(2) == 0, centre, numbers)
    return QuantizedMatrix("centred_int4", numbers.flatten(1).to(torch.uint8), scales, None)


def _choose(
    better: Tensor, candidate: tuple[Tensor, Tensor, Tensor], best: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    numbers, scales, minima = candidate
    return (
        torch.where(better.unsqueeze(2), numbers, best[0]),
        torch.where(better, scales, best[1]),
        torch.where(better, minima, best[2]),
    )


def _nearest_int4(groups: Tensor, scales: Tensor, minima: Tensor) -> Tensor:
    divisors = torch.where(scales == 0, 1.0, scales).unsqueeze(2)
    return ((groups - minima.unsqueeze(2)) / divisors).round().clamp(0, LARGEST_INT4)


def _fit(groups: Tensor, numbers: Tensor, scales: Tensor, minima: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and minimum with the least squared error for these numbers; unchanged if all numbers are equal."""
    mean_number, mean = numbers.mean(dim=2), groups.mean(dim=2)
    apart = numbers - mean_number.unsqueeze(2)
    spread = apart.square().sum(dim=2)
    slope = (apart * (groups - mean.unsqueeze(2))).sum(dim=2) / torch.where(spread == 0, 1.0, spread)
    usable = (spread > 0) & (slope > 0)
    return torch.where(usable, slope, scales), torch.where(usable, mean - slope * mean_number, minima)

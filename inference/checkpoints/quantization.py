"""Quantizes matrices to integers with a scale, and for int4 a minimum, per group of columns, as in GGUF files."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.checkpoints.quantized_matrix import CENTRES, GROUP, QuantizedMatrix
from inference.checkpoints.weights import RoundedType

LARGEST_INT8, LARGEST_INT4 = 127, 15
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)  # of a group's range; values beyond are clamped


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

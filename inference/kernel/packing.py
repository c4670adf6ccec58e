"""Weights in the layout that decode.cpp explains, made from torch's row-major tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

WeightType = Literal["float32", "bfloat16", "int8"]

UNIT = 32  # rows that are stored side by side
HALF = UNIT // 2  # of gate, and of up, in a unit of both
BLOCK = 64  # columns that share a scale, and that rows are padded to
ROWS_AT_ONCE = 4096  # packed at once, so that temporaries stay small beside the weights
LARGEST = 127


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix as the kernel reads it; `rows` and `columns` count the padding."""

    weights: Tensor  # [rows / UNIT, columns / per_lane, UNIT, per_lane]
    scales: Tensor | None  # bfloat16 [rows / UNIT, columns / BLOCK, UNIT], with int8 weights
    bias: Tensor | None  # float32 [rows]
    rows: int
    columns: int


def padded(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


def pad_vector(vector: Tensor, unit: int) -> Tensor:
    """float32, with zeros up to a multiple of `unit`."""
    return F.pad(vector.float(), (0, padded(len(vector), unit) - len(vector))).contiguous()


def pack_matrix(weight: Tensor, bias: Tensor | None, weight_type: WeightType) -> PackedMatrix:
    """weight: [rows, columns] of any floating dtype; bias: [rows]."""
    rows, columns = padded(weight.shape[0], UNIT), padded(weight.shape[1], BLOCK)
    pieces = [_pack_rows(piece, columns, weight_type) for piece in torch.split(weight, ROWS_AT_ONCE)]
    return PackedMatrix(
        weights=torch.cat([weights for weights, _ in pieces]),
        scales=torch.cat([scales for _, scales in pieces if scales is not None]) if weight_type == "int8" else None,
        bias=None if bias is None else pad_vector(bias, UNIT),
        rows=rows,
        columns=columns,
    )


def pack_gate_up(weight: Tensor, bias: Tensor | None, weight_type: WeightType) -> PackedMatrix:
    """weight: [2 * intermediate, columns], the gate's rows first; a unit gets HALF rows of each."""
    return pack_matrix(_interleave_halves(weight), None if bias is None else _interleave_halves(bias), weight_type)


def fits_bfloat16(weight: Tensor) -> bool:
    """Whether these numbers lose nothing as bfloat16, as those of a checkpoint that was stored so."""
    if weight.dtype == torch.bfloat16:
        return True
    return all(torch.equal(piece, piece.bfloat16().to(piece.dtype)) for piece in torch.split(weight, ROWS_AT_ONCE))


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers [rows, columns] up to LARGEST, as float32, and scales [rows, columns / BLOCK], as bfloat16."""
    blocks = weight.float().reshape(len(weight), -1, BLOCK)
    exact = blocks.abs().amax(dim=2) / LARGEST
    near = exact.bfloat16()
    scales = torch.where(near.float() < exact, (near.view(torch.int16) + 1).view(torch.bfloat16), near)
    divisors = torch.where(scales == 0, 1.0, scales.float())
    return (blocks / divisors.unsqueeze(2)).round().clamp(-LARGEST, LARGEST).flatten(1), scales


def _pack_rows(weight: Tensor, columns: int, weight_type: WeightType) -> tuple[Tensor, Tensor | None]:
    missing_rows = padded(weight.shape[0], UNIT) - weight.shape[0]
    whole = F.pad(weight, (0, columns - weight.shape[1], 0, missing_rows))
    if weight_type == "float32":
        return _interleave_rows(whole.float(), 1), None
    if weight_type == "bfloat16":
        return _interleave_rows(whole.bfloat16(), 2), None
    numbers, scales = quantize(whole)
    return _interleave_rows((numbers + 128).to(torch.uint8), 4), _interleave_rows(scales, 1).squeeze(3)


def _interleave_rows(weight: Tensor, per_lane: int) -> Tensor:
    """[rows, columns] as [rows / UNIT, columns / per_lane, UNIT, per_lane]."""
    return weight.reshape(-1, UNIT, weight.shape[1] // per_lane, per_lane).transpose(1, 2).contiguous()


def _interleave_halves(gate_up: Tensor) -> Tensor:
    """Rows of [2 * intermediate, ...] in turns of HALF of the gate and HALF of up, each padded with zeros."""
    halves = gate_up.reshape(2, -1, *gate_up.shape[1:])
    missing = padded(halves.shape[1], HALF) - halves.shape[1]
    trailing = (0, 0) * (halves.dim() - 2)
    whole = F.pad(halves, (*trailing, 0, missing))
    return whole.reshape(2, -1, HALF, *gate_up.shape[1:]).transpose(0, 1).flatten(0, 2)

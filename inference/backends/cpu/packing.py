"""Packs row-major tensors and quantized matrices into the layout that model.h describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from inference.backends.llama.weights import Matrix
from inference.checkpoints.quantization import GROUP, QuantizedMatrix, quantize
from inference.checkpoints.weights import QuantizedType

WeightType = Literal["float32", "bfloat16", QuantizedType]
PackedType = Literal[WeightType, "narrow_float32"]

UNIT = 32  # rows stored side by side
HALF = UNIT // 2  # rows of gate, and of up, in a shared unit
BLOCK = 64  # rows are padded to a multiple of this many columns
VALUES_AT_ONCE = 2**16  # packed at once, to keep temporaries small


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix as the kernel reads it; `rows` and `columns` count the padding."""

    weights: Tensor  # [rows / UNIT, words, UNIT, numbers per word]; int4, centred or not: bytes of two numbers
    scales: Tensor | None  # float16 [rows / UNIT, groups, UNIT]; int4: [rows / UNIT, groups, 2, UNIT] with minima
    bias: Tensor | None  # float32 [rows]
    rows: int
    columns: int
    type: PackedType  # narrow_float32: float32 weights that bfloat16 represents exactly, stored as such


def vocabulary_type(weight_type: WeightType) -> WeightType:
    """The type of the embedding and the head: they lose the most by 4 bits, and keep 8."""
    return "int8" if weight_type in ("int4", "centred_int4") else weight_type


def padded(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


def pad_vector(vector: Tensor, unit: int) -> Tensor:
    """float32, with zeros up to a multiple of `unit`."""
    return F.pad(vector.float(), (0, padded(len(vector), unit) - len(vector))).contiguous()


def pack_matrix(weight: Matrix, bias: Tensor | None, weight_type: WeightType) -> PackedMatrix:
    """weight: [rows, columns], of any floating dtype, or quantized, which keeps its type; bias: [rows]."""
    packed_type: PackedType = weight_type if isinstance(weight, Tensor) else weight.type
    if isinstance(weight, Tensor) and weight_type == "float32" and fits_bfloat16(weight):
        packed_type = "narrow_float32"
    rows, columns = padded(weight.shape[0], UNIT), padded(weight.shape[1], BLOCK)
    weights, scales = _allocate(rows // UNIT, columns, packed_type)
    unit = 0
    for piece in _pieces(weight):
        packed, packed_scales = _pack_rows(piece, columns, packed_type)
        weights[unit : unit + len(packed)] = packed
        if scales is not None and packed_scales is not None:
            scales[unit : unit + len(packed)] = packed_scales
        unit += len(packed)
    return PackedMatrix(weights, scales, None if bias is None else pad_vector(bias, UNIT), rows, columns, packed_type)


def pack_gate_up(weight: Matrix, bias: Tensor | None, weight_type: WeightType) -> PackedMatrix:
    """weight: [2 * intermediate, columns], the gate's rows first; a unit gets HALF rows of each."""
    interleaved = _interleave_halves(weight) if isinstance(weight, Tensor) else weight.map(_interleave_halves)
    return pack_matrix(interleaved, None if bias is None else _interleave_halves(bias), weight_type)


def fits_bfloat16(weight: Tensor) -> bool:
    """Whether bfloat16 represents the weight exactly, as for a checkpoint stored in bfloat16."""
    if weight.dtype == torch.bfloat16:
        return True
    pieces = torch.split(weight, _rows_at_once(weight))
    return all(torch.equal(piece, piece.bfloat16().to(piece.dtype)) for piece in pieces)


def _rows_at_once(weight: Matrix) -> int:
    """Whole units that have about VALUES_AT_ONCE values."""
    return padded(max(1, VALUES_AT_ONCE // weight.shape[1]), UNIT)


def _pieces(weight: Matrix) -> Iterator[Tensor | QuantizedMatrix]:
    step = _rows_at_once(weight)
    for first in range(0, weight.shape[0], step):
        yield weight[first : first + step]


def _allocate(units: int, columns: int, packed_type: PackedType) -> tuple[Tensor, Tensor | None]:
    groups = columns // GROUP
    match packed_type:
        case "float32":
            return torch.empty(units, columns, UNIT, 1), None
        case "bfloat16" | "narrow_float32":
            return torch.empty(units, columns // 2, UNIT, 2, dtype=torch.bfloat16), None
        case "int8":
            scales = torch.empty(units, groups, UNIT, dtype=torch.float16)
            return torch.empty(units, columns // 4, UNIT, 4, dtype=torch.uint8), scales
        case "int4" | "centred_int4":
            of_group = (2, UNIT) if packed_type == "int4" else (UNIT,)
            scales = torch.empty(units, groups, *of_group, dtype=torch.float16)
            return torch.empty(units, columns // 8, UNIT, 4, dtype=torch.uint8), scales


def _pack_rows(weight: Tensor | QuantizedMatrix, columns: int, packed_type: PackedType) -> tuple[Tensor, Tensor | None]:
    if isinstance(weight, QuantizedMatrix):
        return _pack_quantized(weight, columns)
    whole = _pad(weight, columns)
    match packed_type:
        case "float32":
            return _interleave_rows(whole.float(), 1), None
        case "bfloat16" | "narrow_float32":
            return _interleave_rows(whole.bfloat16(), 2), None
        case "int8" | "int4" | "centred_int4":
            return _pack_quantized(quantize(whole, packed_type), columns)


def _pack_quantized(weight: QuantizedMatrix, columns: int) -> tuple[Tensor, Tensor]:
    groups = columns // GROUP
    scales = _interleave_rows(_pad(weight.scales, groups), 1).squeeze(3)
    numbers = _pad(weight.numbers, columns)
    if weight.type == "int8":
        return _interleave_rows((numbers.to(torch.int16) + 128).to(torch.uint8), 4), scales
    eights = numbers.view(-1, columns // 8, 2, 4)  # eight columns to a word
    words = _interleave_rows((eights[:, :, 0] | eights[:, :, 1] << 4).flatten(1), 4)
    if weight.minima is None:
        return words, scales
    minima = _interleave_rows(_pad(weight.minima, groups), 1).squeeze(3)
    return words, torch.stack([scales, minima], dim=2)


def _pad(matrix: Tensor, columns: int) -> Tensor:
    """[rows, columns] with zeros up to a whole unit of rows and up to `columns`."""
    return F.pad(matrix, (0, columns - matrix.shape[1], 0, padded(matrix.shape[0], UNIT) - matrix.shape[0]))


def _interleave_rows(weight: Tensor, per_word: int) -> Tensor:
    """[rows, columns] as [rows / UNIT, columns / per_word, UNIT, per_word]."""
    return weight.reshape(-1, UNIT, weight.shape[1] // per_word, per_word).transpose(1, 2).contiguous()


def _interleave_halves(gate_up: Tensor) -> Tensor:
    """Rows of [2 * intermediate, ...], alternating HALF of gate and HALF of up, each padded with zeros."""
    halves = gate_up.reshape(2, -1, *gate_up.shape[1:])
    missing = padded(halves.shape[1], HALF) - halves.shape[1]
    trailing = (0, 0) * (halves.dim() - 2)
    whole = F.pad(halves, (*trailing, 0, missing)) if missing else halves  # padding copies even by nothing
    return whole.reshape(2, -1, HALF, *gate_up.shape[1:]).transpose(0, 1).flatten(0, 2)

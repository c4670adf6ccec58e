"""Packs row-major tensors and quantized matrices into the layout that model.h describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from inference.backends.cpu.library import NUMBER_TYPES, PackedType, load_library
from inference.backends.cpu.stored import Matrix, StoredMatrix
from inference.checkpoints.quantization import GROUP, QuantizedMatrix, quantize
from inference.checkpoints.weights import RoundedType

WeightType = Literal["float32", "bfloat16", RoundedType]

UNIT = 32  # rows stored side by side
HALF = UNIT // 2  # rows of gate, and of up, in a shared unit
BLOCK = 64  # rows are padded to a multiple of this many columns
GROUP_WORDS = {"int8": 8, "int4": 4, "centred_int4": 4, "int5": 5, "int6": 6}
"""32-bit words that the numbers of a group take."""
VALUES_AT_ONCE = 2**16  # packed at once, to keep temporaries small
STORED_AT_ONCE = 2**19  # of a matrix that the kernel's library reads, without temporaries


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix as the kernel reads it; `rows` and `columns` count the padding."""

    weights: Tensor  # [rows / UNIT, words, UNIT, numbers per word]; of 4 to 6 bits: bytes of two or more numbers
    scales: Tensor | None  # float16 [rows / UNIT, scales of a row, UNIT]; with minima: [rows / UNIT, groups, 2, UNIT]
    bias: Tensor | None  # float32 [rows]
    rows: int
    columns: int
    type: PackedType  # narrow_float32, float16: float32 weights that bfloat16, or float16, represents exactly


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
    if isinstance(weight, Tensor) and weight_type == "float32":
        packed_type = _narrowest(weight)
    rows, columns = padded(weight.shape[0], UNIT), padded(weight.shape[1], BLOCK)
    weights, scales = _allocate(rows // UNIT, columns, packed_type)
    unit = 0
    for piece in _pieces(weight):
        units = slice(unit, unit + padded(piece.shape[0], UNIT) // UNIT)
        if scales is None:
            assert isinstance(piece, Tensor)
            weights[units] = _pack_rows(piece, columns, packed_type)
        else:
            _pack_quantized(_quantized(piece, columns, weight_type), columns, weights[units], scales[units])
        unit = units.stop
    return PackedMatrix(weights, scales, None if bias is None else pad_vector(bias, UNIT), rows, columns, packed_type)


def pack_gate_up(weight: Matrix, bias: Tensor | None, weight_type: WeightType) -> PackedMatrix:
    """weight: [2 * intermediate, columns], the gate's rows first; a unit gets HALF rows of each."""
    interleaved = _interleave_halves(weight) if isinstance(weight, Tensor) else weight.map(_interleave_halves)
    return pack_matrix(interleaved, None if bias is None else _interleave_halves(bias), weight_type)


def fits(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether `dtype` represents the weight exactly, as for a checkpoint stored in it."""
    if weight.dtype == dtype:
        return True
    pieces = torch.split(weight, _rows_at_once(weight))
    return all(torch.equal(piece, piece.to(dtype).to(piece.dtype)) for piece in pieces)


def _narrowest(weight: Tensor) -> PackedType:
    if fits(weight, torch.bfloat16):
        return "narrow_float32"
    return "float16" if fits(weight, torch.float16) else "float32"


def _rows_at_once(weight: Matrix) -> int:
    """Whole units that have about VALUES_AT_ONCE values, or STORED_AT_ONCE."""
    values = STORED_AT_ONCE if isinstance(weight, StoredMatrix) else VALUES_AT_ONCE
    return padded(max(1, values // weight.shape[1]), UNIT)


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
        case "float16":
            return torch.empty(units, columns, UNIT, 1, dtype=torch.float16), None
        case _:
            of_row = (groups * 2, UNIT) if packed_type == "int6" else (groups, UNIT)
            shape = (groups, 2, UNIT) if packed_type in ("int4", "int5") else of_row
            scales = torch.empty(units, *shape, dtype=torch.float16)
            return torch.empty(units, groups * GROUP_WORDS[packed_type], UNIT, 4, dtype=torch.uint8), scales


def _pack_rows(weight: Tensor, columns: int, packed_type: PackedType) -> Tensor:
    whole = _pad(weight, columns)
    match packed_type:
        case "float32":
            return _interleave_rows(whole.float(), 1)
        case "float16":
            return _interleave_rows(whole.half(), 1)
        case _:
            return _interleave_rows(whole.bfloat16(), 2)


def _quantized(weight: Tensor | QuantizedMatrix, columns: int, weight_type: WeightType) -> QuantizedMatrix:
    if isinstance(weight, QuantizedMatrix):
        return weight
    match weight_type:
        case "int8" | "int4" | "centred_int4":
            return quantize(_pad(weight, columns), weight_type)
        case _:
            raise AssertionError(f"{weight_type} has no scales")


def _pack_quantized(weight: QuantizedMatrix, columns: int, words: Tensor, scales: Tensor) -> None:
    """Into `words` and `scales`: the numbers by the kernel's library, since torch would take several passes.

    On a busy machine, the threads of each would wait for each other.
    """
    numbers, of_type = weight.numbers.contiguous(), NUMBER_TYPES[weight.type]
    load_library().midfill_kernel_pack(numbers.data_ptr(), *numbers.shape, columns, of_type, words.data_ptr())
    of_row = _pad(weight.scales, columns * weight.scales.shape[1] // weight.shape[1])
    packed = _interleave_rows(of_row, 1).squeeze(3)
    if weight.minima is None:
        scales.copy_(packed)
        return
    minima = _interleave_rows(_pad(weight.minima, columns // GROUP), 1).squeeze(3)
    scales.copy_(torch.stack([packed, minima], dim=2))


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

"""Packs row-major arrays, tensors and quantized matrices into the layout that model.h describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inference.backends.cpu.library import NUMBER_TYPES, PackedType, load_library
from inference.backends.cpu.stored import Matrix, StoredMatrix
from inference.checkpoints.quantized_matrix import GROUP, QuantizedMatrix
from inference.checkpoints.weights import RoundedType

Array = NDArray[Any]
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

    weights: Array  # [rows / UNIT, words, UNIT, numbers per word]; of 4 to 6 bits: bytes of two or more numbers
    scales: Array | None  # float16 [rows / UNIT, scales of a row, UNIT]; with minima: [rows / UNIT, groups, 2, UNIT]
    bias: Array | None  # float32 [rows]
    rows: int
    columns: int
    type: PackedType  # narrow_float32, float16: float32 weights that bfloat16, or float16, represents exactly


def vocabulary_type(weight_type: WeightType) -> WeightType:
    """The type of the embedding and the head: they lose the most by 4 bits, and keep 8."""
    return "int8" if weight_type in ("int4", "centred_int4") else weight_type


def padded(count: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


def in_numpy(values: Any) -> Array:
    """An array as it is, a tensor as one: bfloat16, which NumPy lacks, as float32."""
    if isinstance(values, np.ndarray):
        return values
    array: Array = (values.float() if "bfloat16" in str(values.dtype) else values).numpy()
    return array


def pad_vector(vector: Any, unit: int) -> Array:
    """float32, with zeros up to a multiple of `unit`."""
    values = in_numpy(vector).astype(np.float32)
    return np.pad(values, (0, padded(len(values), unit) - len(values)))


def pack_matrix(weight: Matrix, bias: Any, weight_type: WeightType) -> PackedMatrix:
    """weight: [rows, columns], of any floating dtype, or quantized, which keeps its type; bias: [rows]."""
    stored_type = weight.type if isinstance(weight, QuantizedMatrix | StoredMatrix) else None
    packed_type: PackedType = stored_type or (_narrowest(weight) if weight_type == "float32" else weight_type)
    rows, columns = padded(weight.shape[0], UNIT), padded(weight.shape[1], BLOCK)
    weights, scales = _allocate(rows // UNIT, columns, packed_type)
    unit = 0
    for piece in _pieces(weight):
        units = slice(unit, unit + padded(piece.shape[0], UNIT) // UNIT)
        if scales is None:
            assert isinstance(piece, np.ndarray)
            weights[units] = _pack_rows(piece, columns, packed_type)
        else:
            _pack_quantized(_quantized(piece, columns, weight_type), columns, weights[units], scales[units])
        unit = units.stop
    return PackedMatrix(weights, scales, None if bias is None else pad_vector(bias, UNIT), rows, columns, packed_type)


def pack_gate_up(weight: Matrix, bias: Any, weight_type: WeightType) -> PackedMatrix:
    """weight: [2 * intermediate, columns], the gate's rows first; a unit gets HALF rows of each."""
    turned = None if bias is None else _interleave_halves(bias)
    if isinstance(weight, QuantizedMatrix | StoredMatrix):
        return pack_matrix(weight.map(_interleave_halves), turned, weight_type)
    return pack_matrix(_interleave_halves(weight), turned, weight_type)


def _narrowest(weight: Any) -> PackedType:
    """The narrowest type that represents the weight exactly, as for a checkpoint stored in it."""
    is_stored = isinstance(weight, StoredMatrix)  # then its pieces are read from the file, twice
    if (weight.is_bfloat16 if is_stored else "bfloat16" in str(weight.dtype)) or all(map(_fits_bfloat16, _pieces(weight))):
        return "narrow_float32"
    return "float16" if all(map(_fits_float16, _pieces(weight))) else "float32"


def _fits_bfloat16(piece: Any) -> bool:
    return not (piece.astype(np.float32).view(np.uint32) & 0xFFFF).any()


def _fits_float16(piece: Any) -> bool:
    with np.errstate(over="ignore"):
        return bool((piece.astype(np.float16).astype(piece.dtype) == piece).all())


def _as_bfloat16(values: Array) -> NDArray[np.uint16]:
    """The bits of the nearest numbers, of two the even one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _rows_at_once(weight: Matrix) -> int:
    """Whole units that have about VALUES_AT_ONCE values, or STORED_AT_ONCE."""
    values = STORED_AT_ONCE if isinstance(weight, StoredMatrix) else VALUES_AT_ONCE
    return padded(max(1, values // weight.shape[1]), UNIT)


def _pieces(weight: Matrix) -> Iterator[Array | QuantizedMatrix]:
    step = _rows_at_once(weight)
    for first in range(0, weight.shape[0], step):
        piece = weight[first : first + step]
        yield piece.map(in_numpy) if isinstance(piece, QuantizedMatrix) else in_numpy(piece)


def _allocate(units: int, columns: int, packed_type: PackedType) -> tuple[Array, Array | None]:
    groups = columns // GROUP
    match packed_type:
        case "float32":
            return np.empty((units, columns, UNIT, 1), np.float32), None
        case "bfloat16" | "narrow_float32":
            return np.empty((units, columns // 2, UNIT, 2), np.uint16), None
        case "float16":
            return np.empty((units, columns, UNIT, 1), np.float16), None
        case _:
            of_row = (groups * 2, UNIT) if packed_type == "int6" else (groups, UNIT)
            shape = (groups, 2, UNIT) if packed_type in ("int4", "int5") else of_row
            scales = np.empty((units, *shape), np.float16)
            return np.empty((units, groups * GROUP_WORDS[packed_type], UNIT, 4), np.uint8), scales


def _pack_rows(weight: Array, columns: int, packed_type: PackedType) -> Array:
    whole = _pad(weight, columns)
    match packed_type:
        case "float32":
            return _interleave_rows(whole.astype(np.float32), 1)
        case "float16":
            return _interleave_rows(whole.astype(np.float16), 1)
        case _:
            return _interleave_rows(_as_bfloat16(whole), 2)


def _quantized(weight: Array | QuantizedMatrix, columns: int, weight_type: WeightType) -> QuantizedMatrix:
    if isinstance(weight, QuantizedMatrix):
        return weight
    match weight_type:
        case "int8" | "int4" | "centred_int4":
            import torch  # here, since files that are quantized do without it

            from inference.checkpoints.quantization import quantize

            return quantize(torch.from_numpy(_pad(weight, columns)), weight_type).map(in_numpy)
        case _:
            raise AssertionError(f"{weight_type} has no scales")


def _pack_quantized(weight: QuantizedMatrix, columns: int, words: Array, scales: Array) -> None:
    """Into `words` and `scales`: the numbers by the kernel's library, since torch would take several passes.

    On a busy machine, the threads of each would wait for each other.
    """
    numbers, of_type = np.ascontiguousarray(weight.numbers), NUMBER_TYPES[weight.type]
    load_library().midfill_kernel_pack(numbers.ctypes.data, *numbers.shape, columns, of_type, words.ctypes.data)
    of_row = _pad(weight.scales, columns * weight.scales.shape[1] // weight.shape[1])
    packed = _interleave_rows(of_row, 1)[..., 0]
    if weight.minima is None:
        scales[...] = packed
        return
    minima = _interleave_rows(_pad(weight.minima, columns // GROUP), 1)[..., 0]
    scales[:, :, 0], scales[:, :, 1] = packed, minima


def _pad(matrix: Array, columns: int) -> Array:
    """[rows, columns] with zeros up to a whole unit of rows and up to `columns`."""
    missing = (padded(matrix.shape[0], UNIT) - matrix.shape[0], columns - matrix.shape[1])
    return np.pad(matrix, ((0, missing[0]), (0, missing[1]))) if any(missing) else matrix


def _interleave_rows(weight: Array, per_word: int) -> Array:
    """[rows, columns] as [rows / UNIT, columns / per_word, UNIT, per_word]."""
    return weight.reshape(-1, UNIT, weight.shape[1] // per_word, per_word).swapaxes(1, 2)


def _interleave_halves(gate_up: Any) -> Array:
    """Rows of [2 * intermediate, ...], alternating HALF of gate and HALF of up, each padded with zeros."""
    rows = in_numpy(gate_up)
    halves = rows.reshape(2, -1, *rows.shape[1:])
    missing = padded(halves.shape[1], HALF) - halves.shape[1]
    whole = np.pad(halves, ((0, 0), (0, missing), *((0, 0),) * (halves.ndim - 2))) if missing else halves
    return whole.reshape(2, -1, HALF, *rows.shape[1:]).swapaxes(0, 1).reshape(-1, *rows.shape[1:])

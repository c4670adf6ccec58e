"""Turns the blocks of GGUF tensors into matrices that the CPU kernel multiplies, or into plain tensors.

Q8_0, Q5_0, Q5_1, Q4_0 and Q4_1 keep every value. Q4_K, Q5_K and Q6_K store the scale and the minimum of a group as
products of a float16 and a small integer, which are rounded to float16 here. All other quantized types become int8.
A type of 4 to 6 bits also stands in `_SMALL_TYPES` of `inference/checkpoints/weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.checkpoints.quantization import GROUP, QuantizedMatrix, quantize
from inference.checkpoints.weights import QuantizedType

Bytes = NDArray[np.uint8]  # [rows, bytes of a row]
Numbers = NDArray[Any]

_UNQUANTIZED: dict[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantized(stored: Bytes, type_name: str) -> Tensor:
    """[rows, columns] of any type that the gguf package knows, in its own memory; float32 if it is quantized."""
    if type_name in _UNQUANTIZED:
        return torch.from_numpy(stored.copy()).view(_UNQUANTIZED[type_name])
    values: Numbers = gguf.dequantize(stored, gguf.GGMLQuantizationType[type_name])
    return torch.from_numpy(values)


def quantized(stored: Bytes, type_name: str) -> QuantizedMatrix:
    """The matrix of a quantized type, in the nearest type of the kernel."""
    unpack = _UNPACKED.get(type_name)
    if unpack is not None:
        return unpack(stored)
    return quantize(dequantized(stored, type_name), "int8")


def stacked(matrices: list[QuantizedMatrix], to: QuantizedType) -> QuantizedMatrix:
    """The matrices one below the other, in a type that all of them can have."""
    return _joined(matrix.as_type(to) for matrix in matrices)


def _joined(pieces: Iterable[QuantizedMatrix]) -> QuantizedMatrix:
    whole = list(pieces)
    if len(whole) == 1:
        return whole[0]
    minima = [piece.minima for piece in whole if piece.minima is not None]
    return QuantizedMatrix(
        whole[0].type,
        torch.cat([piece.numbers for piece in whole]),
        torch.cat([piece.scales for piece in whole]),
        torch.cat(minima) if minima else None,
    )


def _blocks(stored: Bytes, size: int) -> Bytes:
    return np.ascontiguousarray(stored).reshape(len(stored), -1, size)


def _float16(blocks: Bytes, at: int) -> Numbers:
    """One float16 of each block: [rows, blocks]."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view(np.float16)[:, :, 0]


def _matrix(type_: QuantizedType, numbers: Numbers, scales: Numbers, minima: Numbers | None = None) -> QuantizedMatrix:
    """numbers: [rows, ..., columns that share a scale]; scales and minima: [rows, ...]."""
    rows = len(numbers)
    halves = [
        None if values is None else torch.from_numpy(np.ascontiguousarray(values.reshape(rows, -1), dtype=np.float16))
        for values in (scales, minima)
    ]
    assert halves[0] is not None
    whole = torch.from_numpy(np.ascontiguousarray(numbers.reshape(rows, -1)))
    return QuantizedMatrix(type_, whole, halves[0], halves[1])


def _halves(packed: Bytes) -> Numbers:
    """[..., GROUP / 2] bytes as [..., GROUP] numbers: the low halves of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _q8_0(stored: Bytes) -> QuantizedMatrix:
    blocks = _blocks(stored, 2 + GROUP)
    return _matrix("int8", blocks[:, :, 2:].view(np.int8), _float16(blocks, 0))


def _q5_0(stored: Bytes) -> QuantizedMatrix:
    """32 columns: a scale, the fifth bits of all numbers, their lower halves; 16 stands for zero."""
    blocks = _blocks(stored, 6 + GROUP // 2)
    scales = _float16(blocks, 0)
    return _matrix("int5", _fives(blocks[:, :, 2:6], blocks[:, :, 6:]), scales, scales * np.float16(-16))


def _q5_1(stored: Bytes) -> QuantizedMatrix:
    blocks = _blocks(stored, 8 + GROUP // 2)
    return _matrix("int5", _fives(blocks[:, :, 4:8], blocks[:, :, 8:]), _float16(blocks, 0), _float16(blocks, 2))


def _fives(fifth: Bytes, packed: Bytes) -> Numbers:
    """The numbers of blocks that store the fifth bits of all columns, and their lower halves."""
    numbers: Numbers = _halves(packed) | np.unpackbits(fifth, axis=2, bitorder="little") << 4
    return numbers


def _q4_0(stored: Bytes) -> QuantizedMatrix:
    blocks = _blocks(stored, 2 + GROUP // 2)
    return _matrix("centred_int4", _halves(blocks[:, :, 2:]), _float16(blocks, 0))


def _q4_1(stored: Bytes) -> QuantizedMatrix:
    blocks = _blocks(stored, 4 + GROUP // 2)
    return _matrix("int4", _halves(blocks[:, :, 4:]), _float16(blocks, 0), _float16(blocks, 2))


def _q4_k(stored: Bytes) -> QuantizedMatrix:
    """256 columns: scales and minima, four runs of 32 bytes."""
    blocks = _blocks(stored, 144)
    return _matrix("int4", _runs(blocks[:, :, 16:]), *_scales_and_minima(blocks))


def _q5_k(stored: Bytes) -> QuantizedMatrix:
    """256 columns: scales and minima, 32 bytes of which bit i is the fifth of the ith group, four runs of 32 bytes."""
    blocks = _blocks(stored, 176)
    fifth = blocks[:, :, 16:48, None] >> np.arange(8, dtype=np.uint8) & 1
    return _matrix("int5", _runs(blocks[:, :, 48:]) | fifth.swapaxes(2, 3) << 4, *_scales_and_minima(blocks))


def _q6_k(stored: Bytes) -> QuantizedMatrix:
    """256 columns: 2 * 64 bytes of lower halves, 2 * 32 bytes of four pairs of upper bits, 16 int8 scales, a factor."""
    blocks = _blocks(stored, 210)
    lower = blocks[:, :, :128].reshape(*blocks.shape[:2], 2, 1, 64)
    upper = blocks[:, :, 128:192].reshape(*blocks.shape[:2], 2, 1, GROUP)
    numbers = np.concatenate([lower & 15, lower >> 4], axis=3).reshape(*blocks.shape[:2], 2, 4, GROUP)
    numbers |= (upper >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3) << 4
    scales = blocks[:, :, 192:208].view(np.int8) * _float16(blocks, 208).astype(np.float32)[:, :, None]
    return _matrix("int6", numbers, scales)


def _runs(packed: Bytes) -> Numbers:
    """[rows, blocks, 8, GROUP]: a run of 32 bytes has the low halves of one group, the high halves of the next."""
    runs = packed.reshape(*packed.shape[:2], 4, 1, GROUP)
    return np.concatenate([runs & 15, runs >> 4], axis=3).reshape(*packed.shape[:2], 8, GROUP)


def _scales_and_minima(blocks: Bytes) -> tuple[Numbers, Numbers]:
    """Each [rows, blocks, 8]: d, dmin, and eight pairs of 6-bit scale and minimum in twelve bytes."""
    packed = blocks[:, :, 4:16]
    first, second, third = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=2)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=2)
    return (
        _float16(blocks, 0).astype(np.float32)[:, :, None] * scales,
        _float16(blocks, 2).astype(np.float32)[:, :, None] * -minima.astype(np.float32),
    )


_UNPACKED: dict[str, Callable[[Bytes], QuantizedMatrix]] = {
    "Q8_0": _q8_0,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
}

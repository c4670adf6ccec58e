"""Turns the blocks of GGUF tensors into matrices that the CPU kernel multiplies, or into plain tensors.

Q8_0, Q5_0, Q4_0 and Q4_1 keep every value. Q4_K stores the scale and the minimum of a group as products of a float16
and a 6-bit number, which are rounded to float16 here. All other quantized types become int8.
An int4 type also stands in `_INT4_TYPES` of `inference/checkpoints/weights.py`.
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
        torch.cat([piece.numbers for piece in whole]),
        torch.cat([piece.scales for piece in whole]),
        torch.cat(minima) if minima else None,
    )


def _blocks(stored: Bytes, size: int) -> Bytes:
    return np.ascontiguousarray(stored).reshape(len(stored), -1, size)


def _float16(blocks: Bytes, at: int) -> Numbers:
    """One float16 of each block: [rows, blocks]."""
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view(np.float16)[:, :, 0]


def _matrix(numbers: Numbers, scales: Numbers, minima: Numbers | None) -> QuantizedMatrix:
    """numbers: [rows, ..., GROUP]; scales and minima: [rows, ...]."""
    rows = len(numbers)
    halves = [
        None if values is None else torch.from_numpy(np.ascontiguousarray(values.reshape(rows, -1), dtype=np.float16))
        for values in (scales, minima)
    ]
    assert halves[0] is not None
    return QuantizedMatrix(torch.from_numpy(np.ascontiguousarray(numbers.reshape(rows, -1))), halves[0], halves[1])


def _halves(packed: Bytes) -> Numbers:
    """[..., GROUP / 2] bytes as [..., GROUP] numbers: the low halves of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _q8_0(stored: Bytes) -> QuantizedMatrix:
    blocks = _blocks(stored, 2 + GROUP)
    return _matrix(blocks[:, :, 2:].view(np.int8), _float16(blocks, 0), None)


def _q5_0(stored: Bytes) -> QuantizedMatrix:
    """32 columns: a scale, the fifth bits of all numbers, their lower halves; numbers count from 16."""
    blocks = _blocks(stored, 6 + GROUP // 2)
    fifth = np.unpackbits(blocks[:, :, 2:6], axis=2, bitorder="little")
    return _matrix((_halves(blocks[:, :, 6:]) | fifth << 4).astype(np.int8) - 16, _float16(blocks, 0), None)


def _q4_0(stored: Bytes) -> QuantizedMatrix:
    blocks = _blocks(stored, 2 + GROUP // 2)
    return _matrix(_halves(blocks[:, :, 2:]), _float16(blocks, 0), None)


def _q4_1(stored: Bytes) -> QuantizedMatrix:
    blocks = _blocks(stored, 4 + GROUP // 2)
    return _matrix(_halves(blocks[:, :, 4:]), _float16(blocks, 0), _float16(blocks, 2))


def _q4_k(stored: Bytes) -> QuantizedMatrix:
    """256 columns: d, dmin, eight pairs of 6-bit scale and minimum in twelve bytes, four runs of 32 bytes."""
    blocks = _blocks(stored, 144)
    packed = blocks[:, :, 4:16]
    first, second, third = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=2)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=2)
    numbers = blocks[:, :, 16:].reshape(*blocks.shape[:2], 4, GROUP)
    return _matrix(
        np.stack([numbers & 15, numbers >> 4], axis=3),
        _float16(blocks, 0).astype(np.float32)[:, :, None] * scales,
        _float16(blocks, 2).astype(np.float32)[:, :, None] * -minima.astype(np.float32),
    )


_UNPACKED: dict[str, Callable[[Bytes], QuantizedMatrix]] = {
    "Q8_0": _q8_0,
    "Q5_0": _q5_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
}

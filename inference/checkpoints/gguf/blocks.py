"""Dequantizes the blocks of GGUF tensors on any device; `inference/backends/cpu/stored.py` reads them for the CPU kernel."""

from __future__ import annotations

from collections.abc import Callable

import gguf
import torch
from torch import Tensor

from inference.checkpoints.quantized_matrix import GROUP, QuantizedMatrix
from inference.checkpoints.weights import QuantizedType

_UNQUANTIZED: dict[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantized(stored: Tensor, type_name: str) -> Tensor:
    """[rows, columns] of uint8 [rows, bytes of a row], in its own memory; float32 if quantized, with the values of gguf's.

    Types without a function here are dequantized in main memory.
    """
    if type_name in _UNQUANTIZED:
        return stored.clone().view(_UNQUANTIZED[type_name])
    if (unpack := _UNPACKED.get(type_name)) is not None:
        values: Tensor = unpack(stored).dequantized()
        return values
    return torch.from_numpy(gguf.dequantize(stored.cpu().numpy(), gguf.GGMLQuantizationType[type_name])).to(stored.device)


def _blocks(stored: Tensor, size: int) -> Tensor:
    return stored.reshape(len(stored), -1, size)


def _float16(blocks: Tensor, at: int) -> Tensor:
    """One float16 of each block, widened: [rows, blocks]."""
    return blocks[:, :, at : at + 2].contiguous().view(torch.float16)[:, :, 0].float()


def _matrix(type_: QuantizedType, numbers: Tensor, scales: Tensor, minima: Tensor | None = None) -> QuantizedMatrix:
    """numbers: [rows, ..., columns that share a scale]; scales and minima: float32 [rows, ...]."""
    return QuantizedMatrix(type_, numbers.flatten(1), scales.flatten(1), None if minima is None else minima.flatten(1))


def _halves(packed: Tensor) -> Tensor:
    """[..., bytes] as [..., 2 * bytes] numbers: the low halves of all bytes, then the high ones."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def _bits(packed: Tensor) -> Tensor:
    """[..., bytes, 8]: the bits of each byte, the lowest first."""
    return packed.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=packed.device) & 1


def _q8_0(stored: Tensor) -> QuantizedMatrix:
    blocks = _blocks(stored, 2 + GROUP)
    return _matrix("int8", blocks[:, :, 2:].view(torch.int8), _float16(blocks, 0))


def _q5_0(stored: Tensor) -> QuantizedMatrix:
    """32 columns: a scale, the fifth bits of all numbers, their lower halves; 16 stands for zero."""
    blocks = _blocks(stored, 6 + GROUP // 2)
    scales = _float16(blocks, 0)
    return _matrix("int5", _fives(blocks[:, :, 2:6], blocks[:, :, 6:]), scales, scales * -16)


def _q5_1(stored: Tensor) -> QuantizedMatrix:
    blocks = _blocks(stored, 8 + GROUP // 2)
    return _matrix("int5", _fives(blocks[:, :, 4:8], blocks[:, :, 8:]), _float16(blocks, 0), _float16(blocks, 2))


def _fives(fifth: Tensor, packed: Tensor) -> Tensor:
    """The numbers of blocks that store the fifth bits of all columns, and their lower halves."""
    return _halves(packed) | _bits(fifth).flatten(2) << 4


def _q4_0(stored: Tensor) -> QuantizedMatrix:
    blocks = _blocks(stored, 2 + GROUP // 2)
    return _matrix("centred_int4", _halves(blocks[:, :, 2:]), _float16(blocks, 0))


def _q4_1(stored: Tensor) -> QuantizedMatrix:
    blocks = _blocks(stored, 4 + GROUP // 2)
    return _matrix("int4", _halves(blocks[:, :, 4:]), _float16(blocks, 0), _float16(blocks, 2))


def _q4_k(stored: Tensor) -> QuantizedMatrix:
    """256 columns: scales and minima, four runs of 32 bytes."""
    blocks = _blocks(stored, 144)
    return _matrix("int4", _runs(blocks[:, :, 16:]), *_scales_and_minima(blocks))


def _q5_k(stored: Tensor) -> QuantizedMatrix:
    """256 columns: scales and minima, 32 bytes of which bit i is the fifth of the ith group, four runs of 32 bytes."""
    blocks = _blocks(stored, 176)
    fifth = _bits(blocks[:, :, 16:48]).transpose(2, 3)
    return _matrix("int5", _runs(blocks[:, :, 48:]) | fifth << 4, *_scales_and_minima(blocks))


def _q6_k(stored: Tensor) -> QuantizedMatrix:
    """256 columns: 2 * 64 bytes of lower halves, 2 * 32 bytes of four pairs of upper bits, 16 int8 scales, a factor."""
    blocks = _blocks(stored, 210)
    start = blocks.shape[:2]
    lower, upper = blocks[:, :, :128].reshape(*start, 2, 64), blocks[:, :, 128:192].reshape(*start, 2, 1, GROUP)
    pairs = upper >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=stored.device)[:, None] & 3
    numbers = _halves(lower) | pairs.flatten(3) << 4
    scales = blocks[:, :, 192:208].view(torch.int8) * _float16(blocks, 208).unsqueeze(2)
    return _matrix("int6", numbers, scales)


def _runs(packed: Tensor) -> Tensor:
    """[rows, blocks, 8, GROUP]: a run of 32 bytes has the low halves of one group, the high halves of the next."""
    start = packed.shape[:2]
    return _halves(packed.reshape(*start, 4, GROUP)).reshape(*start, 8, GROUP)


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Each [rows, blocks, 8]: d, dmin, and eight pairs of 6-bit scale and minimum in twelve bytes."""
    first, second, third = torch.split(blocks[:, :, 4:16], 4, dim=2)
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], dim=2)
    minima = torch.cat([second & 63, third >> 4 | second >> 6 << 4], dim=2)
    return _float16(blocks, 0).unsqueeze(2) * scales, _float16(blocks, 2).unsqueeze(2) * -minima.float()


_UNPACKED: dict[str, Callable[[Tensor], QuantizedMatrix]] = {
    "Q8_0": _q8_0,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
}

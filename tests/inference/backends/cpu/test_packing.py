from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from inference.backends.cpu.packing import BLOCK, HALF, UNIT, PackedMatrix, WeightType, pack_gate_up, pack_matrix
from inference.checkpoints.quantization import quantize
from inference.checkpoints.quantized_matrix import GROUP, QuantizedMatrix
from inference.checkpoints.weights import QuantizedType

GENERATOR = torch.Generator().manual_seed(3)


def unpack(matrix: PackedMatrix) -> torch.Tensor:
    """Row-major numbers [rows, columns] as the kernel understands them."""
    weights = torch.from_numpy(matrix.weights)
    if matrix.weights.dtype == np.uint16:
        weights = weights.view(torch.bfloat16)
    words = weights.transpose(1, 2).reshape(matrix.rows, -1, matrix.weights.shape[3])
    upper_words = {"int5": 1, "int6": 2}.get(matrix.type, 0)
    if matrix.type in ("int4", "centred_int4", "int5", "int6"):
        groups = words.view(matrix.rows, -1, 4 + upper_words, 4)
        upper, lower = groups[:, :, :upper_words], groups[:, :, upper_words:]
        words = torch.stack([lower & 15, lower >> 4], dim=3).view(matrix.rows, -1, 8, 4)
        for field in range(8 if upper_words else 0):
            word, at = (0, field) if upper_words == 1 else (field // 4, field % 4 * 2)
            words[:, :, field] |= (upper[:, :, word] >> at & (2**upper_words - 1)) << 4
    rows = words.reshape(matrix.rows, matrix.columns).float()
    if matrix.scales is None:
        return rows

    def of_columns(scales: torch.Tensor) -> torch.Tensor:
        of_row = scales.transpose(1, 2).reshape(matrix.rows, -1).float()
        return of_row.repeat_interleave(matrix.columns // of_row.shape[1], dim=1)

    centre = {"int8": 128, "centred_int4": 8, "int6": 32}.get(matrix.type)
    if centre is not None:
        return (rows - centre) * of_columns(torch.from_numpy(matrix.scales))
    scales, minima = torch.from_numpy(matrix.scales).unbind(2)
    return rows * of_columns(scales) + of_columns(minima)


def random_quantized(rows: int, columns: int, quantized_type: QuantizedType) -> QuantizedMatrix:
    largest = {"int4": 15, "centred_int4": 15, "int5": 31, "int6": 63, "int8": 127}[quantized_type]
    numbers = torch.randint(0, largest + 1, (rows, columns), generator=GENERATOR, dtype=torch.uint8)
    groups = columns // (GROUP // 2 if quantized_type == "int6" else GROUP)
    scales, minima = (torch.rand(rows, groups, generator=GENERATOR).half() for _ in range(2))
    signed = numbers.to(torch.int8) - 60 if quantized_type == "int8" else numbers
    return QuantizedMatrix(quantized_type, signed, scales, -minima if quantized_type in ("int4", "int5") else None)


@pytest.mark.parametrize("weight_type", get_args(WeightType))
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (33, 65), (500, 70)])
def test_every_weight_finds_its_place(weight_type: WeightType, rows: int, columns: int) -> None:
    weight = torch.randn(rows, columns, generator=GENERATOR)
    packed = pack_matrix(weight, torch.ones(rows), weight_type)
    assert packed.rows % UNIT == packed.columns % BLOCK == 0
    assert packed.bias is not None
    assert packed.bias.shape == (packed.rows,)
    found = unpack(packed)
    assert not found[rows:].any()
    if weight_type != "int4":  # whose minimum need not leave a zero; the inputs there are zero
        assert not found[:, columns:].any()
    expected = weight.bfloat16().float() if weight_type == "bfloat16" else weight
    steps = {"float32": 0, "bfloat16": 0, "int8": 1 / 250, "int4": 1 / 10, "centred_int4": 1 / 7}[weight_type]
    torch.testing.assert_close(found[:rows, :columns], expected, rtol=0, atol=weight.abs().max().item() * steps)


def test_gate_and_up_take_turns_by_halves_of_units() -> None:
    gate, up = torch.randn(20, 8, generator=GENERATOR), torch.randn(20, 8, generator=GENERATOR)
    bias = torch.arange(40.0)
    packed = pack_gate_up(torch.cat([gate, up]), bias, "float32")
    rows = unpack(packed)[:, :8].unflatten(0, (-1, 2, HALF))
    torch.testing.assert_close(rows[:, 0].flatten(0, 1)[:20], gate)
    torch.testing.assert_close(rows[:, 1].flatten(0, 1)[:20], up)
    assert packed.bias is not None
    assert packed.bias[:HALF].tolist() == bias[:HALF].tolist()
    assert packed.bias[HALF : 2 * HALF].tolist() == bias[20 : 20 + HALF].tolist()


@pytest.mark.parametrize("rows", [1, 500])
@pytest.mark.parametrize("quantized_type", ["int8", "int4", "centred_int4", "int5", "int6"])
def test_a_quantized_matrix_is_packed_as_it_is(quantized_type: QuantizedType, rows: int) -> None:
    matrix = random_quantized(rows, 3 * GROUP, quantized_type)
    packed = pack_matrix(matrix, None, "float32")
    assert packed.type == quantized_type
    assert torch.equal(unpack(packed)[:rows, : 3 * GROUP], matrix.dequantized())


def test_quantized_numbers_stay_within_127() -> None:
    weight = torch.randn(50, 2 * GROUP, generator=GENERATOR) * torch.logspace(-9, 4, 50)[:, None]
    weight[7] = 0
    matrix = quantize(weight, "int8")
    assert matrix.numbers.abs().max() <= 127
    assert matrix.scales.isfinite().all()
    steps = matrix.scales.float().repeat_interleave(GROUP, dim=1)
    assert ((matrix.dequantized() - weight).abs() <= steps * 0.5001).all()


def test_int4_is_closer_than_its_range_alone_would_be() -> None:
    weight = torch.randn(200, 4 * GROUP, generator=GENERATOR)
    matrix = quantize(weight, "int4")
    assert matrix.numbers.max() == 15
    groups = weight.unflatten(1, (-1, GROUP))
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    plain = ((groups - low) / (high - low) * 15).round() / 15 * (high - low) + low
    error, plain_error = ((other - groups).square().mean() for other in (matrix.dequantized().view_as(groups), plain))
    assert error < 0.9 * plain_error


def test_a_constant_group_is_kept_as_int4() -> None:
    weight = torch.full((1, GROUP), -0.75)
    assert torch.equal(quantize(weight, "int4").dequantized(), weight)


def test_what_bfloat16_can_hold_is_told_from_what_it_cannot() -> None:
    weight = torch.randn(5000, 70, generator=GENERATOR)
    assert pack_matrix(weight, None, "float32").type == "float32"
    assert pack_matrix(weight.bfloat16(), None, "float32").type == "narrow_float32"
    rounded = weight.bfloat16().float()
    assert pack_matrix(rounded, None, "float32").type == "narrow_float32"
    rounded[4999, 69] = 1 + 2.0**-20
    assert pack_matrix(rounded, None, "float32").type == "float32"


def test_weights_of_16_bits_stay_as_they_are_stored() -> None:
    half = torch.randn(40, 70, generator=GENERATOR).half()
    packed = pack_matrix(half.float(), None, "float32")
    assert (packed.type, packed.weights.dtype) == ("float16", np.float16)
    assert torch.equal(unpack(packed)[:40, :70], half.float())

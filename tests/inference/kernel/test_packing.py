from __future__ import annotations

from typing import get_args

import pytest
import torch

from inference.kernel.packing import (
    BLOCK,
    HALF,
    UNIT,
    PackedMatrix,
    WeightType,
    fits_bfloat16,
    pack_gate_up,
    pack_matrix,
    quantize,
)

GENERATOR = torch.Generator().manual_seed(3)


def unpack(matrix: PackedMatrix) -> torch.Tensor:
    """Row-major numbers [rows, columns] as the kernel understands them."""
    rows = matrix.weights.transpose(1, 2).reshape(matrix.rows, matrix.columns).float()
    if matrix.scales is None:
        return rows
    scales = matrix.scales.transpose(1, 2).reshape(matrix.rows, -1).float()
    return (rows - 128) * scales.repeat_interleave(BLOCK, dim=1)


@pytest.mark.parametrize("weight_type", get_args(WeightType))
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (32, 64), (33, 65), (5000, 70)])
def test_every_weight_finds_its_place(weight_type: WeightType, rows: int, columns: int) -> None:
    weight = torch.randn(rows, columns, generator=GENERATOR)
    packed = pack_matrix(weight, torch.ones(rows), weight_type)
    assert packed.rows % UNIT == packed.columns % BLOCK == 0
    assert packed.bias is not None
    assert packed.bias.shape == (packed.rows,)
    found = unpack(packed)
    assert not found[rows:].any()
    assert not found[:, columns:].any()
    expected = {"float32": weight, "bfloat16": weight.bfloat16().float(), "int8": weight}[weight_type]
    torch.testing.assert_close(
        found[:rows, :columns], expected, rtol=0, atol=weight.abs().max().item() / 250 if weight_type == "int8" else 0
    )


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


def test_quantized_numbers_stay_within_127() -> None:
    blocks = torch.randn(50, 2 * BLOCK, generator=GENERATOR) * torch.logspace(-30, 5, 50)[:, None]
    blocks[7] = 0
    numbers, scales = quantize(blocks)
    assert numbers.abs().max() <= 127
    assert scales.isfinite().all()
    restored = numbers * scales.float().repeat_interleave(BLOCK, dim=1)
    assert ((restored - blocks).abs() <= scales.float().repeat_interleave(BLOCK, dim=1) * 0.5001).all()


def test_what_bfloat16_can_hold_is_told_from_what_it_cannot() -> None:
    weight = torch.randn(5000, 70, generator=GENERATOR)
    assert not fits_bfloat16(weight)
    assert fits_bfloat16(weight.bfloat16())
    rounded = weight.bfloat16().float()
    assert fits_bfloat16(rounded)
    rounded[4999, 69] = 1 + 2.0**-20
    assert not fits_bfloat16(rounded)

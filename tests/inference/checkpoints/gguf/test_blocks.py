from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inference.checkpoints.gguf.blocks import dequantized, quantized, stacked
from inference.checkpoints.quantization import QuantizedMatrix
from inference.checkpoints.weights import QuantizedType, common_type

ROWS, COLUMNS = 70, 512
RANDOM = np.random.default_rng(7)
VALUES = (RANDOM.standard_normal((ROWS, COLUMNS)) * 0.05).astype(np.float32)
FLOAT16_AT = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where a block of 256 columns has float16 numbers; any other bytes are valid."""


def stored(kind: str) -> NDArray[np.uint8]:
    """Rows of a type: quantized by the gguf package, or random blocks where it only dequantizes."""
    number = gguf.GGMLQuantizationType[kind]
    if kind not in FLOAT16_AT:
        return np.asarray(gguf.quantize(VALUES, number)).view(np.uint8)
    values, size = gguf.GGML_QUANT_SIZES[number]
    blocks = RANDOM.integers(0, 256, (ROWS, COLUMNS // values, size), dtype=np.uint8)
    for at in FLOAT16_AT[kind]:
        scales = (RANDOM.random((ROWS, COLUMNS // values, 1)) * 0.01).astype(np.float16)
        blocks[:, :, at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(ROWS, -1)


def reference(rows: NDArray[np.uint8], kind: str) -> torch.Tensor:
    return torch.from_numpy(np.array(gguf.dequantize(rows, gguf.GGMLQuantizationType[kind]), dtype=np.float32))


@pytest.mark.parametrize(
    ("kind", "type_"), [("Q8_0", "int8"), ("Q5_0", "int5"), ("Q5_1", "int5"), ("Q4_0", "centred_int4"), ("Q4_1", "int4")]
)
def test_types_with_groups_of_32_keep_every_value(kind: str, type_: str) -> None:
    rows = stored(kind)
    matrix = quantized(rows, kind)
    assert matrix.type == type_
    assert torch.equal(matrix.dequantized(), reference(rows, kind))


def test_negative_scales_keep_every_value() -> None:
    rows = stored("Q4_0")
    assert (rows.reshape(ROWS, -1, 18)[:, :, :2].copy().view(np.float16) < 0).any()
    assert torch.equal(quantized(rows, "Q4_0").as_type("int4").dequantized(), reference(rows, "Q4_0"))
    assert torch.equal(quantized(rows, "Q4_0").dequantized(), reference(rows, "Q4_0"))


@pytest.mark.parametrize(("kind", "type_"), [("Q4_K", "int4"), ("Q5_K", "int5"), ("Q6_K", "int6")])
def test_blocks_of_256_round_scales_and_minima_to_float16_alone(kind: str, type_: str) -> None:
    rows = stored(kind)
    matrix, exact = quantized(rows, kind), reference(rows, kind)
    assert matrix.type == type_
    scales = matrix.scales.float().abs().repeat_interleave(COLUMNS // matrix.scales.shape[1], dim=1)
    largest = matrix.numbers.clamp(min=32) * scales  # 32 of int6 stands for zero
    lowest = 0 if matrix.minima is None else matrix.minima.float().abs().repeat_interleave(32, dim=1)
    assert ((matrix.dequantized() - exact).abs() <= (largest + lowest) * 2**-11 + 2**-21).all()


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K"])
def test_other_types_become_int8_within_half_a_step(kind: str) -> None:
    rows = stored(kind)
    matrix, exact = quantized(rows, kind), reference(rows, kind)
    assert matrix.type == "int8"
    half_steps = matrix.scales.float().repeat_interleave(32, dim=1) / 2
    assert ((matrix.dequantized() - exact).abs() <= half_steps * 1.001).all()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_unquantized_types_are_copied(kind: str) -> None:
    rows = stored(kind)
    assert torch.equal(dequantized(rows, kind).float(), reference(rows, kind))


def test_matrices_of_one_type_are_stacked_as_they_are() -> None:
    above, below = quantized(stored("Q4_1"), "Q4_1"), quantized(stored("Q4_0"), "Q4_0")
    whole = stacked([above, below], "int4")
    assert whole.type == "int4"
    assert torch.equal(whole.dequantized(), torch.cat([above.dequantized(), below.dequantized()]))


@pytest.mark.parametrize(("kind", "larger"), [("Q4_0", "int6"), ("Q4_0", "int5"), ("Q4_1", "int5")])
def test_a_larger_type_keeps_the_values(kind: str, larger: QuantizedType) -> None:
    matrix = quantized(stored(kind), kind)
    assert matrix.as_type(larger).type == larger == common_type({matrix.type, larger})
    assert torch.equal(matrix.as_type(larger).dequantized(), matrix.dequantized())


def test_matrices_of_several_types_become_int8() -> None:
    above, below = quantized(stored("Q4_1"), "Q4_1"), quantized(stored("Q8_0"), "Q8_0")
    whole: QuantizedMatrix = stacked([above, below], "int8")
    assert whole.type == "int8"
    assert torch.equal(whole[ROWS:].dequantized(), below.dequantized())
    error: Any = (whole[:ROWS].dequantized() - above.dequantized()).abs().max()
    assert error <= whole.scales.float().max() / 2

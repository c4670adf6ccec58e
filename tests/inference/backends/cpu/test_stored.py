from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inference.backends.cpu.stored import StoredMatrix, StoredRows
from inference.checkpoints.quantized_matrix import QuantizedMatrix
from inference.checkpoints.weights import StoredTensor
from protocol.errors import BadModel

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tensors"


class InTensors(StoredMatrix):
    """A matrix whose rows are tensors, which can be dequantized."""

    def __getitem__(self, rows: slice) -> QuantizedMatrix:
        return super().__getitem__(rows).map(torch.from_numpy)


def matrix_of(file: Path, *parts: tuple[NDArray[np.uint8], str]) -> StoredMatrix:
    """Tensors of these rows and types, one below the other."""
    file.write_bytes(b"".join(rows.tobytes() for rows, _ in parts))
    ends = np.cumsum([rows.size for rows, _ in parts])
    tensors = [
        StoredTensor(kind, (len(rows), COLUMNS), int(end) - rows.size, int(end))
        for (rows, kind), end in zip(parts, ends, strict=True)
    ]
    return InTensors([StoredRows(file, tensor, np.arange(tensor.shape[0])) for tensor in tensors])


@pytest.mark.parametrize(
    ("kind", "type_"), [("Q8_0", "int8"), ("Q5_0", "int5"), ("Q5_1", "int5"), ("Q4_0", "centred_int4"), ("Q4_1", "int4")]
)
def test_types_with_groups_of_32_keep_every_value(file: Path, kind: str, type_: str) -> None:
    rows = stored(kind)
    matrix = matrix_of(file, (rows, kind))[:]
    assert matrix.type == type_
    assert (matrix.scales < 0).any() == (kind in ("Q4_0", "Q5_0"))
    assert torch.equal(matrix.dequantized(), reference(rows, kind))


@pytest.mark.parametrize(("kind", "type_"), [("Q4_K", "int4"), ("Q5_K", "int5"), ("Q6_K", "int6")])
def test_blocks_of_256_round_scales_and_minima_to_float16_alone(file: Path, kind: str, type_: str) -> None:
    rows = stored(kind)
    matrix, exact = matrix_of(file, (rows, kind))[:], reference(rows, kind)
    assert matrix.type == type_
    scales = matrix.scales.float().abs().repeat_interleave(COLUMNS // matrix.scales.shape[1], dim=1)
    largest = matrix.numbers.clamp(min=32) * scales  # 32 of int6 stands for zero
    lowest = 0 if matrix.minima is None else matrix.minima.float().abs().repeat_interleave(32, dim=1)
    assert ((matrix.dequantized() - exact).abs() <= (largest + lowest) * 2**-11 + 2**-21).all()


def test_scales_are_rounded_to_the_nearest_float16_and_of_two_to_the_even_one(file: Path) -> None:
    """The scale of a group in Q6_K is a float16, here of all sizes, times an integer."""
    rows = stored("Q6_K")
    blocks = rows.reshape(ROWS, -1, 210)
    factors = (RANDOM.standard_normal(blocks.shape[:2]) * 10.0 ** RANDOM.integers(-8, 2, blocks.shape[:2])).astype("f2")
    blocks[:, :, 208:] = factors[:, :, None].view(np.uint8)
    with np.errstate(over="ignore"):
        expected = (blocks[:, :, 192:208].view(np.int8) * factors.astype(np.float32)[:, :, None]).astype(np.float16)
    found = matrix_of(file, (rows, "Q6_K"))[:].scales.numpy()
    assert np.array_equal(found.view(np.uint16), expected.reshape(ROWS, -1).view(np.uint16))
    assert (np.abs(expected[expected != 0]) < 2**-14).any()


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K"])
def test_other_types_become_int8_within_half_a_step(file: Path, kind: str) -> None:
    rows = stored(kind)
    matrix, exact = matrix_of(file, (rows, kind))[:], reference(rows, kind)
    assert matrix.type == "int8"
    half_steps = matrix.scales.float().repeat_interleave(32, dim=1) / 2
    assert ((matrix.dequantized() - exact).abs() <= half_steps * 1.001).all()


@pytest.mark.parametrize(
    ("kind", "other", "larger"), [("Q4_0", "Q4_1", "int4"), ("Q4_0", "Q5_1", "int5"), ("Q4_0", "Q6_K", "int6")]
)
def test_a_larger_type_keeps_the_values(file: Path, kind: str, other: str, larger: str) -> None:
    above, below = stored(kind), stored(other)
    whole = matrix_of(file, (above, kind), (below, other))
    assert whole.type == larger
    assert torch.equal(whole[:ROWS].dequantized(), reference(above, kind))
    assert torch.equal(whole[ROWS:].dequantized(), matrix_of(file, (below, other))[:].dequantized())


def test_matrices_of_several_types_become_int8(file: Path) -> None:
    above, below = stored("Q4_1"), stored("Q8_0")
    whole: QuantizedMatrix = matrix_of(file, (above, "Q4_1"), (below, "Q8_0"))[:]
    assert whole.type == "int8"
    assert torch.equal(whole[ROWS:].dequantized(), reference(below, "Q8_0"))
    error: Any = (whole[:ROWS].dequantized() - reference(above, "Q4_1")).abs().max()
    assert error <= whole.scales.float().max() / 2


def test_rows_are_taken_in_any_order_and_zeros_between(file: Path) -> None:
    whole = matrix_of(file, (stored("Q4_1"), "Q4_1"), (stored("Q4_0"), "Q4_0"))
    values = torch.cat([torch.zeros(1, COLUMNS), whole[:].dequantized()])
    order = RANDOM.integers(0, 2 * ROWS + 1, 60)
    turned = whole.map(lambda rows: np.concatenate([np.zeros(1, np.int64), rows])[order])
    assert torch.equal(turned[10:50].map(torch.from_numpy).dequantized(), values[order[10:50]])


def test_a_file_that_became_shorter_is_refused(file: Path) -> None:
    whole = matrix_of(file, (stored("Q4_1"), "Q4_1"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadModel, match="is shorter than when it was opened"):
        whole[:]

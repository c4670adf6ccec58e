from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from midfill_lab.recipe.calibrated_rounding import calibrated_rounding, round_columns
from midfill_lab.recipe.to_gguf import write_gguf
from midfill_lab.training.errors import OptionError
from midfill_lab.training.interchange.from_gguf import read_base
from midfill_lab.training.options import Quantization
from tests.inference.smollm import write_smollm

TYPES = Quantization("q5_0", "q5_0")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "smollm").mkdir()
    return write_smollm(tmp_path / "smollm")


def read(packed: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], kind: str) -> torch.Tensor:
    return torch.from_numpy(gguf.dequantize(packed, gguf.GGMLQuantizationType[kind.upper()]))


@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "q5_0", "q5_1"])
def test_inputs_that_go_together_make_up_for_what_rounding_loses(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(48, 96, generator=generator)
    inputs = torch.randn(400, 12, generator=generator) @ torch.randn(12, 96, generator=generator)
    inputs += 0.1 * torch.randn(400, 96, generator=generator)
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    plain = torch.from_numpy(gguf.dequantize(gguf.quantize(weights.numpy(), type_), type_))
    rounded = read(round_columns(weights, inputs.T @ inputs, kind), kind)
    lost, lost_by_plain = ((inputs @ (one - weights).T).norm() for one in (rounded, plain))
    assert lost < 0.5 * lost_by_plain


def test_columns_that_saw_nothing_are_rounded_plainly() -> None:
    weights = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    rounded = read(round_columns(weights, torch.zeros(64, 64), "q5_0"), "q5_0")
    assert (rounded - weights).abs().max() < 0.15


def test_a_file_holds_the_matrices_that_were_rounded(model: Path, corpus_folder: Path, tmp_path: Path) -> None:
    rounded = calibrated_rounding(str(model), corpus_folder, TYPES, windows=2, window=128)
    state = load_file(model / "model.safetensors")
    assert sorted(rounded) == sorted(name for name, weights in state.items() if "proj" in name)
    write_gguf(str(model), tmp_path / "model.gguf", TYPES, rounded=rounded)
    read_base(tmp_path / "model.gguf", tmp_path / "base", dtype=torch.float32)
    held = load_file(tmp_path / "base" / "model.safetensors")
    for name, packed in rounded.items():
        torch.testing.assert_close(held[name], read(packed, "q5_0"), rtol=0, atol=0)


def test_types_of_more_bits_need_no_corpus(model: Path, corpus_folder: Path) -> None:
    with pytest.raises(OptionError, match="not q8_0"):
        calibrated_rounding(str(model), corpus_folder, Quantization("q8_0", "q8_0"), windows=1)

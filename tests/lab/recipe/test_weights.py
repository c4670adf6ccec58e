from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from midfill_lab.recipe.to_gguf import write_gguf
from midfill_lab.recipe.weights import WEIGHTS, average_models, calibrated_rounding, quantization_losses, round_columns
from midfill_lab.training.from_gguf import read_base
from midfill_lab.training.model import build_model
from midfill_lab.training.options import OptionError, Quantization
from midfill_lab.training.publish import write_model
from midfill_lab.training.vocabulary import Vocabulary
from tests.inference.smollm import write_smollm
from tests.lab.training.runs import OPTIONS, TINY


def write(folder: Path, *values: float, name: str = "layer.weight") -> Path:
    folder.mkdir()
    save_file({name: torch.tensor(values, dtype=torch.bfloat16)}, folder / WEIGHTS)
    (folder / "config.json").write_text(f'{{"of": "{folder.name}"}}')
    (folder / "README.md").write_text("a card")
    return folder


def test_the_mean_has_the_precision_and_files_of_the_first(tmp_path: Path) -> None:
    one, other, output = write(tmp_path / "one", 1, 2), write(tmp_path / "other", 5, -2), tmp_path / "mean"
    average_models({one: 0.75, other: 0.25}, output)
    weights = load_file(output / WEIGHTS)
    assert weights.keys() == {"layer.weight"}
    assert torch.equal(weights["layer.weight"], torch.tensor([2, 1], dtype=torch.bfloat16))
    assert (output / "config.json").read_text() == '{"of": "one"}'
    assert sorted(path.name for path in output.iterdir()) == ["config.json", WEIGHTS]


def test_weights_are_added_in_full_precision(tmp_path: Path) -> None:
    """In bfloat16, a seventh of 1 seven times is 0.992."""
    shares = {write(tmp_path / name, 1): 1 / 7 for name in "abcdefg"}
    average_models(shares, tmp_path / "mean")
    assert load_file(tmp_path / "mean" / WEIGHTS)["layer.weight"].tolist() == [1]


def test_an_output_that_is_one_of_the_models_is_replaced_as_a_whole(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one", 1), write(tmp_path / "other", 3)
    average_models({one: 0.5, other: 0.5}, one)
    assert load_file(one / WEIGHTS)["layer.weight"].tolist() == [2]


def test_what_cannot_be_averaged_is_named(tmp_path: Path) -> None:
    one = write(tmp_path / "one", 1)
    with pytest.raises(OptionError, match=r"shares 0\.5, 0\.4 do not sum to 1"):
        average_models({one: 0.5, write(tmp_path / "two", 1): 0.4}, tmp_path / "mean")
    with pytest.raises(OptionError, match=r"config\.json is a file"):
        average_models({one: 1.0}, one / "config.json")
    with pytest.raises(OptionError, match="shares nan do not sum to 1"):
        average_models({one: float("nan")}, tmp_path / "mean")
    with pytest.raises(OptionError, match=r"layer\.weight of .*longer is not that of .*one"):
        average_models({one: 0.5, write(tmp_path / "longer", 1, 2): 0.5}, tmp_path / "mean")
    with pytest.raises(OptionError, match=r"weight of .*named is not that of"):
        average_models({one: 0.5, write(tmp_path / "named", 1, name="weight"): 0.5}, tmp_path / "mean")
    with pytest.raises(OptionError, match=r"absent.model\.safetensors cannot be read"):
        average_models({one: 0.5, tmp_path / "absent": 0.5}, tmp_path / "mean")
    (tmp_path / "named" / WEIGHTS).write_bytes(b"no weights")
    with pytest.raises(OptionError, match=r"named.model\.safetensors cannot be read"):
        average_models({one: 0.5, tmp_path / "named": 0.5}, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


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


@pytest.fixture
def new_model(corpus_folder: Path, vocabulary: Vocabulary, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    (tmp_path / "model").mkdir()
    write_model(build_model(TINY, vocabulary), corpus_folder / "tokenizer.json", tmp_path / "model", OPTIONS)
    return tmp_path / "model"


def test_fewer_bits_are_smaller_and_further_from_the_model(new_model: Path, corpus_folder: Path) -> None:
    choices = [None, Quantization("q8_0", "q8_0"), Quantization("q4_0", "q4_0")]
    rows = list(quantization_losses(str(new_model), corpus_folder, choices, samples=4, window=64))
    assert [row.quantization for row in rows] == choices
    sizes = [row.num_bytes for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    whole, eight, four = (row.losses[-1].whole for row in rows)
    assert 0 < abs(eight - whole) < abs(four - whole)

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from midfill_lab.recipe.averaging import WEIGHTS, average_models
from midfill_lab.training.errors import OptionError


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

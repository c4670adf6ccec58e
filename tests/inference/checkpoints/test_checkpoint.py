from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS, find_checkpoint, fingerprint
from protocol.errors import BadInput, BadModel
from tests.inference.tiny import edit_config


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_checkpoint, tmp_path / "copy")


def test_folder_is_a_model(folder: Path) -> None:
    checkpoint = find_checkpoint(str(folder))
    assert checkpoint.architecture.layers == 2
    assert checkpoint.tokenizer().format.name == "midfill"
    assert len(checkpoint.weights()) == 1


def test_the_config_may_tell_the_format_and_the_training(folder: Path) -> None:
    edit_config(folder, midfill={"fim_format": "starcoder", "fragments_suffice": True})
    with pytest.raises(BadModel, match="which the FIM format 'starcoder' needs"):
        find_checkpoint(str(folder)).tokenizer()
    assert find_checkpoint(str(folder)).tokenizer("midfill").format.name == "midfill"  # what is asked for goes first


@pytest.mark.parametrize("notes", [None, [], {}, {"fim_format": None}, {"fim_format": ["x"]}, {"fragments_suffice": "no"}])
def test_notes_that_no_trainer_writes_do_no_harm(folder: Path, notes: object) -> None:
    edit_config(folder, midfill=notes)
    with suppress(BadInput):
        assert find_checkpoint(str(folder)).tokenizer().format.name == "midfill"


def test_weights_that_another_program_quantized_are_refused_wherever_they_are_looked_at(folder: Path) -> None:
    edit_config(folder, quantization_config={"quant_method": "awq"})
    with pytest.raises(BadModel, match="its weights are quantized by awq"):
        find_checkpoint(str(folder)).weights()


@pytest.mark.parametrize("model", ["nothing", "./nowhere/at/all", "a b/c", "", "~nosuchuser/x", "x" * 300, "a\0b"])
def test_what_is_no_model_is_named(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadModel, match=r"no model|no config"):
        find_checkpoint(model)


def test_a_missing_model_of_our_own_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUNDLED_FOLDERS, "bundled", tmp_path / "none")
    with pytest.raises(BadModel, match=r"'bundled' is not installed: install its wheel"):
        find_checkpoint("bundled")


def test_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=rf"{tmp_path} is not a model folder: it has no config\.json"):
        find_checkpoint(str(tmp_path))


def test_damaged_config_is_named(folder: Path) -> None:
    deep = '{"a":' * 100_000
    for content, message in (("{", "cannot be read"), ("[]", "holds a list"), ("{}", "type None"), (deep, "Recursion")):
        (folder / "config.json").write_text(content)
        with pytest.raises(BadModel, match=rf"config\.json.*{message}"):
            find_checkpoint(str(folder))


def test_missing_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadModel, match=r"has no tokenizer\.json"):
        find_checkpoint(str(folder))


def test_fingerprint_follows_what_kv_depends_on(folder: Path) -> None:
    def current(dtype: str = "float32") -> str:
        return fingerprint(find_checkpoint(str(folder)), dtype)

    prints = [current()]
    assert current() == prints[0]
    prints.append(current("bfloat16"))
    edit_config(folder, rope_theta=123.0)
    prints.append(current())
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    prints.append(current())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    prints.append(current())
    assert len(set(prints)) == len(prints)

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from inference.checkpoints.local_models.description import describe
from inference.checkpoints.local_models.found import Found
from tests.inference.gguf_files import write_gguf


def test_a_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    model = describe(Found("ollama:a:b", "Ollama", path))
    assert (model.family, model.quantization, model.fim) == ("qwen2", "Q4_K_M", "qwen-coder")
    assert (model.parameters, model.size) == (11 * 64, path.stat().st_size)


def test_families_with_the_same_tokens_differ_by_name(tmp_path: Path) -> None:
    markers = ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<filename>", "<reponame>")
    path = write_gguf(tmp_path / "blob", "llama", markers)
    assert describe(Found("ollama:mellum:4b", "Ollama", path)).fim == "mellum"
    assert describe(Found("ollama:other:4b", "Ollama", path)).fim == "starcoder"
    named = write_gguf(tmp_path / "named", "llama", markers, name="Mellum 4b base")
    assert describe(Found("ollama:mine:4b", "Ollama", named)).fim == "mellum"


def test_a_model_without_markers_cannot_fill_in(tmp_path: Path) -> None:
    assert describe(Found("a", "llama.cpp", write_gguf(tmp_path / "a.gguf", markers=()))).fim == ""


def test_a_checkpoint(tiny_checkpoint: Path) -> None:
    model = describe(Found("someone/tiny", "Hugging Face", tiny_checkpoint))
    assert (model.name, model.family, model.fim, model.problem) == ("someone/tiny", "llama", "midfill", "")
    assert model.size == (tiny_checkpoint / "model.safetensors").stat().st_size
    assert 0 < model.parameters < model.size
    assert model.quantization in ("F32", "BF16")


def test_a_part_of_a_model_that_is_missing_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a-00001-of-00003.gguf", split_count=3)
    assert "a-00002-of-00003.gguf is missing" in describe(Found("a", "llama.cpp", path)).problem


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model", b"GGUF\x03\0\0\0" + b"\xff" * 16])
def test_a_damaged_file_has_a_problem(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    assert str(path) in describe(Found("a", "llama.cpp", path)).problem


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[]"),
        ("config.json", "{"),
        ("config.json", "{}"),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", '{"added_tokens": [1]}'),
        ("tokenizer.json", '{"added_tokens": 1}'),
        ("model.safetensors", ""),
    ],
)
def test_a_damaged_checkpoint_has_a_problem(tiny_checkpoint: Path, tmp_path: Path, file: str, content: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_checkpoint, folder)
    (folder / file).write_text(content)
    assert file in describe(Found("a/b", "Hugging Face", folder)).problem


@pytest.mark.parametrize("value", [{"quant_method": "gptq"}, 3, None])
def test_weights_quantized_by_others(tiny_checkpoint: Path, tmp_path: Path, value: object) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": value}))
    model = describe(Found("a/b", "Hugging Face", folder))
    assert ("gptq" in model.problem, model.quantization == "gptq") == (value not in (3, None),) * 2


@pytest.mark.parametrize("value", [None, [4096], {}, "many", -1])
@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta", "sliding_window", "max_position_embeddings"])
def test_an_odd_value_in_a_config_hides_no_other_model(
    tiny_checkpoint: Path, tmp_path: Path, key: str, value: object
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_checkpoint, folder)
    config = json.loads((folder / "config.json").read_text()) | {"use_sliding_window": True, "rope_parameters": {}}
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    model = describe(Found("a/b", "Hugging Face", folder))
    assert "Error" not in model.problem
    is_absent = value is None and key != "max_position_embeddings"
    assert (key in model.problem) != is_absent


def test_what_nobody_has_thought_of_hides_no_other_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("inference.checkpoints.local_models.description.open_checkpoint", fail)
    assert "too deep" in describe(Found("a/b", "Hugging Face", tmp_path)).problem

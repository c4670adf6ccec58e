from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from inference.checkpoints import other_programs
from inference.checkpoints.checkpoint import find_local_checkpoint
from inference.checkpoints.local_models import describe, search
from inference.checkpoints.other_programs import FoundModel, path_of
from protocol.errors import BadModel
from tests.inference.gguf_files import write_gguf


def test_a_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    model = describe(FoundModel("ollama:a:b", "Ollama", path))
    assert (model.family, model.quantization, model.fim) == ("qwen2", "Q4_K_M", "qwen-coder")
    assert (model.parameters, model.size) == (11 * 64, path.stat().st_size)


def test_families_with_the_same_tokens_differ_by_name(tmp_path: Path) -> None:
    markers = ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<filename>", "<reponame>")
    path = write_gguf(tmp_path / "blob", "llama", markers)
    assert describe(FoundModel("ollama:mellum:4b", "Ollama", path)).fim == "mellum"
    assert describe(FoundModel("ollama:other:4b", "Ollama", path)).fim == "starcoder"
    named = write_gguf(tmp_path / "named", "llama", markers, name="Mellum 4b base")
    assert describe(FoundModel("ollama:mine:4b", "Ollama", named)).fim == "mellum"


def test_a_model_without_markers_cannot_fill_in(tmp_path: Path) -> None:
    assert describe(FoundModel("a", "llama.cpp", write_gguf(tmp_path / "a.gguf", markers=()))).fim == ""


def test_a_checkpoint(tiny_checkpoint: Path) -> None:
    model = describe(FoundModel("someone/tiny", "Hugging Face", tiny_checkpoint))
    assert (model.name, model.family, model.fim, model.problem) == ("someone/tiny", "llama", "midfill", "")
    assert model.size == (tiny_checkpoint / "model.safetensors").stat().st_size
    assert 0 < model.parameters < model.size
    assert model.quantization in ("F32", "BF16")


def test_a_part_of_a_model_that_is_missing_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a-00001-of-00003.gguf", split_count=3)
    assert "a-00002-of-00003.gguf is missing" in describe(FoundModel("a", "llama.cpp", path)).problem


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model", b"GGUF\x03\0\0\0" + b"\xff" * 16])
def test_a_damaged_file_has_a_problem(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    assert str(path) in describe(FoundModel("a", "llama.cpp", path)).problem


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
    assert file in describe(FoundModel("a/b", "Hugging Face", folder)).problem


def test_what_nobody_has_thought_of_hides_no_other_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("inference.checkpoints.local_models.open_checkpoint", fail)
    assert "too deep" in describe(FoundModel("a/b", "Hugging Face", tmp_path)).problem


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; what this machine has beside it is left out."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(other_programs, "_SERVICE_FOLDER", tmp_path / "none")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / ".cache/huggingface/hub"))
    return tmp_path


@pytest.fixture
def full_home(home: Path) -> Path:
    """A home with one model of each program."""
    digest = "ab" * 32
    write_gguf(home / ".ollama/models/blobs" / f"sha256-{digest}")
    manifest = home / ".ollama/models/manifests/registry.ollama.ai/library/qwen2.5-coder/1.5b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": [{"mediaType": other_programs.MODEL_LAYER, "digest": f"sha256:{digest}"}]}))
    write_gguf(home / ".lmstudio/models/someone/model/file.gguf")
    write_gguf(home / ".cache/llama.cpp/cached.gguf")
    write_gguf(home / ".cache/huggingface/hub/models--a--b/snapshots" / ("1" * 40) / "hub.gguf")
    return home


def test_every_program_is_searched(full_home: Path) -> None:
    found = {model.name: (model.source, model.family) for model in search()}
    assert found == {
        "bundled": ("midfill", "llama"),
        "tiny": ("midfill", "llama"),
        "ollama:qwen2.5-coder:1.5b": ("Ollama", "qwen2"),
        str(full_home / ".lmstudio/models/someone/model/file.gguf"): ("LM Studio", "qwen2"),
        str(full_home / ".cache/llama.cpp/cached.gguf"): ("llama.cpp", "qwen2"),
        "a/b:HUB": ("Hugging Face", "qwen2"),
    }


def test_listed_names_of_ollama_lead_to_their_files(full_home: Path) -> None:
    for model in search():
        if model.source == "Ollama":
            assert path_of(model.name) == model.path
    assert path_of("Qwen/Qwen2.5-Coder-1.5B") is None
    with pytest.raises(BadModel, match="Ollama has no model 'none'"):
        find_local_checkpoint("ollama:none")


def test_an_empty_home(home: Path) -> None:
    assert [model.name for model in search()] == ["bundled", "tiny"]

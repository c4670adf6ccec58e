from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import find_local_checkpoint
from inference.checkpoints.local_models import ollama
from inference.checkpoints.local_models.names import path_of
from inference.checkpoints.local_models.search import search
from protocol.errors import BadModel
from tests.inference.gguf_files import write_gguf


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one model of each program; the service's folder of this machine is left out."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(ollama, "_SERVICE_FOLDER", tmp_path / "none")
    digest = "ab" * 32
    write_gguf(tmp_path / ".ollama/models/blobs" / f"sha256-{digest}")
    manifest = tmp_path / ".ollama/models/manifests/registry.ollama.ai/library/qwen2.5-coder/1.5b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": [{"mediaType": ollama.MODEL_LAYER, "digest": f"sha256:{digest}"}]}))
    write_gguf(tmp_path / ".lmstudio/models/someone/model/file.gguf")
    write_gguf(tmp_path / ".cache/llama.cpp/cached.gguf")
    write_gguf(tmp_path / ".cache/huggingface/hub/models--a--b/snapshots" / ("1" * 40) / "hub.gguf")
    return tmp_path


def test_every_program_is_searched(home: Path) -> None:
    found = {model.name: (model.source, model.family) for model in search({}, home)}
    assert found == {
        "bundled": ("midfill", "llama"),
        "tiny": ("midfill", "llama"),
        "ollama:qwen2.5-coder:1.5b": ("Ollama", "qwen2"),
        "lmstudio:someone/model/file.gguf": ("LM Studio", "qwen2"),
        str(home / ".cache/llama.cpp/cached.gguf"): ("llama.cpp", "qwen2"),
        "a/b:HUB": ("Hugging Face", "qwen2"),
    }


def test_listed_names_of_programs_lead_to_their_files(home: Path) -> None:
    for model in search({}, home):
        if model.source in ("Ollama", "LM Studio"):
            assert path_of(model.name) == model.path
    assert path_of("Qwen/Qwen2.5-Coder-1.5B") is None
    with pytest.raises(BadModel, match="Ollama has no model 'none'"):
        find_local_checkpoint("ollama:none")


def test_an_empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama, "_SERVICE_FOLDER", tmp_path / "none")
    assert [model.name for model in search({}, tmp_path)] == ["bundled", "tiny"]

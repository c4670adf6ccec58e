from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference.checkpoints.other_programs import MODEL_LAYER, locate_in_ollama, ollama_folders, ollama_models
from protocol.errors import BadModel

DIGEST = "sha256:" + "ab" * 32


def put(folder: Path, where: str, *digests: str, media_type: str = MODEL_LAYER) -> Path:
    """A manifest as Ollama writes it, and the blobs that it names."""
    manifest = folder / "manifests" / where
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [{"mediaType": media_type, "digest": digest, "size": 3} for digest in digests]
    template = {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64, "size": 1}
    manifest.write_text(json.dumps({"schemaVersion": 2, "config": {}, "layers": [*layers, template]}))
    for digest in digests:
        blob = folder / "blobs" / digest.replace(":", "-")
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(b"abc")
    return manifest


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("registry.ollama.ai/library/qwen2.5-coder/1.5b", "ollama:qwen2.5-coder:1.5b"),
        ("registry.ollama.ai/library/codellama/latest", "ollama:codellama:latest"),
        ("registry.ollama.ai/someone/mine/7b-q4_0", "ollama:someone/mine:7b-q4_0"),
        ("hf.co/bartowski/Qwen-GGUF/Q4_K_M", "ollama:hf.co/bartowski/Qwen-GGUF:Q4_K_M"),
    ],
)
def test_a_listed_name_leads_to_its_blob(tmp_path: Path, where: str, name: str) -> None:
    put(tmp_path, where, DIGEST)
    (found,) = ollama_models(tmp_path)
    assert (found.name, found.problem) == (name, "")
    assert found.path == tmp_path / "blobs" / ("sha256-" + "ab" * 32)
    assert locate_in_ollama(name, (tmp_path / "none", tmp_path)) == found.path


def test_without_a_tag_it_is_the_latest(tmp_path: Path) -> None:
    put(tmp_path, "registry.ollama.ai/library/codellama/latest", DIGEST)
    assert locate_in_ollama("ollama:codellama", (tmp_path,)).name == "sha256-" + "ab" * 32


@pytest.mark.parametrize("name", ["ollama:../../x", "ollama:a/../b/c", "ollama:", "ollama:a/b/c/d", "ollama:x:../y"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadModel, match="not a name of Ollama's"):
        locate_in_ollama(name, (tmp_path,))


def test_a_model_that_is_not_here(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"Ollama has no model 'qwen:7b' in .*: run `ollama pull`"):
        locate_in_ollama("ollama:qwen:7b", (tmp_path,))


def test_what_is_wrong_with_a_manifest_is_listed(tmp_path: Path) -> None:
    library = "registry.ollama.ai/library"
    put(tmp_path, f"{library}/a/no-json").write_text("{")
    put(tmp_path, f"{library}/b/no-layers").write_text("[]")
    put(tmp_path, f"{library}/c/no-weights")
    put(tmp_path, f"{library}/d/no-digest").write_text(
        json.dumps({"layers": [{"mediaType": MODEL_LAYER, "digest": "sha256:../../etc/passwd"}]})
    )
    put(tmp_path, f"{library}/e/no-blob", DIGEST)
    (tmp_path / "blobs" / DIGEST.replace(":", "-")).unlink()
    found = {model.name: model.problem for model in ollama_models(tmp_path)}
    assert "not a manifest" in found["ollama:a:no-json"]
    assert "not a manifest" in found["ollama:b:no-layers"]
    assert "names 0 files" in found["ollama:c:no-weights"]
    assert "not a digest" in found["ollama:d:no-digest"]
    assert "ollama pull" in found["ollama:e:no-blob"]


def test_folders(tmp_path: Path) -> None:
    assert ollama_folders({"OLLAMA_MODELS": "/data/ollama"}, tmp_path) == (Path("/data/ollama"),)
    assert ollama_folders({}, tmp_path)[0] == tmp_path / ".ollama" / "models"
    assert list(ollama_models(tmp_path / "none")) == []

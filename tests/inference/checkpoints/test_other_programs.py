from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from inference.checkpoints.other_programs import (
    MODEL_LAYER,
    gguf_models,
    hugging_face_models,
    llama_cpp_folders,
    lm_studio_folders,
    locate_in_ollama,
    ollama_folders,
    ollama_models,
    path_of,
)
from protocol.errors import BadModel

DIGEST = "sha256:" + "ab" * 32


def put_manifest(folder: Path, where: str, *digests: str, media_type: str = MODEL_LAYER) -> Path:
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
    put_manifest(tmp_path, where, DIGEST)
    (found,) = ollama_models(tmp_path)
    assert (found.name, found.problem) == (name, "")
    assert found.path == tmp_path / "blobs" / ("sha256-" + "ab" * 32)
    assert locate_in_ollama(name, (tmp_path / "none", tmp_path)) == found.path


def test_without_a_tag_it_is_the_latest(tmp_path: Path) -> None:
    put_manifest(tmp_path, "registry.ollama.ai/library/codellama/latest", DIGEST)
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
    put_manifest(tmp_path, f"{library}/a/no-json").write_text("{")
    put_manifest(tmp_path, f"{library}/b/no-layers").write_text("[]")
    put_manifest(tmp_path, f"{library}/c/no-weights")
    put_manifest(tmp_path, f"{library}/d/no-digest").write_text(
        json.dumps({"layers": [{"mediaType": MODEL_LAYER, "digest": "sha256:../../etc/passwd"}]})
    )
    put_manifest(tmp_path, f"{library}/e/no-blob", DIGEST)
    (tmp_path / "blobs" / DIGEST.replace(":", "-")).unlink()
    found = {model.name: model.problem for model in ollama_models(tmp_path)}
    assert "not a manifest" in found["ollama:a:no-json"]
    assert "not a manifest" in found["ollama:b:no-layers"]
    assert "names 0 files" in found["ollama:c:no-weights"]
    assert "not a digest" in found["ollama:d:no-digest"]
    assert "ollama pull" in found["ollama:e:no-blob"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_folders_of_ollama(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ollama_folders()[0] == home / ".ollama" / "models"
    monkeypatch.setenv("OLLAMA_MODELS", "/data/ollama")
    assert ollama_folders() == (Path("/data/ollama"),)
    assert list(ollama_models(tmp_path / "none")) == []


OLD, NEW = "1" * 40, "2" * 40


def put_repository(cache: Path, repository: str, commit: str, *files: str, refs: str = "main") -> Path:
    """A snapshot as the hub's library lays it: links to blobs."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    for name in files:
        blob = folder / "blobs" / f"{commit}-{name}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_text(name)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    if refs:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / refs).write_text(commit)
    return folder / "snapshots" / commit


def test_repositories_by_name_and_gguf_files_by_quantization(tmp_path: Path) -> None:
    snapshot = put_repository(tmp_path, "Qwen/Coder", NEW, "config.json", "model.safetensors")
    quantized = put_repository(tmp_path, "someone/Coder-GGUF", NEW, "q4.gguf", "q8.gguf", "mmproj.gguf", "config.json")
    put_repository(tmp_path, "someone/pickled", NEW, "config.json", "pytorch_model.bin")
    assert [(model.name, model.path) for model in hugging_face_models(tmp_path)] == [
        ("Qwen/Coder", snapshot),
        ("someone/Coder-GGUF:Q4", quantized / "q4.gguf"),
        ("someone/Coder-GGUF:Q8", quantized / "q8.gguf"),
    ]


def test_the_revision_is_that_of_main(tmp_path: Path) -> None:
    main = put_repository(tmp_path, "a/b", OLD, "config.json", "model.safetensors")
    put_repository(tmp_path, "a/b", NEW, "config.json", "model.safetensors", refs="pr-1")
    assert [model.path for model in hugging_face_models(tmp_path)] == [main]


def test_a_damaged_repository_is_listed_with_its_fault(tmp_path: Path) -> None:
    (tmp_path / "models--a--b" / "snapshots").mkdir(parents=True)
    (tmp_path / "models--a--b" / "snapshots" / "a file").touch()
    (found,) = hugging_face_models(tmp_path)
    assert "a file" in found.problem


def test_no_cache_of_hugging_face(tmp_path: Path) -> None:
    assert list(hugging_face_models(tmp_path / "none")) == []
    (tmp_path / "file").touch()
    assert list(hugging_face_models(tmp_path / "file")) == []


def test_models_are_named_by_their_path(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("b_q4.gguf", "b_q4.gguf.etag", "mmproj-b.gguf", "a/b/two-00001-of-00002.gguf", "a/b/two-00002-of-00002.gguf"):
        (tmp_path / name).touch()
    found = [str(tmp_path / name) for name in ("a/b/two-00001-of-00002.gguf", "b_q4.gguf")]
    assert [model.name for model in gguf_models(tmp_path, "LM Studio")] == found
    assert list(gguf_models(tmp_path / "none", "llama.cpp")) == []


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, ["HOME/.cache/llama.cpp"]),
        ("linux", {"XDG_CACHE_HOME": "/x"}, ["/x/llama.cpp"]),
        ("linux", {"LLAMA_CACHE": "/y"}, ["/y"]),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, ["HOME/Library/Caches/llama.cpp"]),
        ("win32", {"LOCALAPPDATA": "/local"}, ["/local/llama.cpp"]),
        ("win32", {}, []),
    ],
)
def test_folders_of_llama_cpp(platform: str, environment: dict[str, str], expected: list[str], monkeypatch, home) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert list(llama_cpp_folders()) == [Path(path.replace("HOME", str(home))) for path in expected]


def test_a_name_of_lm_studio_says_what_to_write() -> None:
    with pytest.raises(BadModel, match="by its file, as `midfill models` lists it"):
        path_of("lmstudio:a/b/c.gguf")


def test_folders_of_lm_studio(home: Path) -> None:
    assert lm_studio_folders() == (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models")

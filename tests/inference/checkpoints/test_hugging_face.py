from __future__ import annotations

from pathlib import Path

import pytest

from inference.checkpoints.other_programs import hugging_face_folders, hugging_face_models

OLD, NEW = "1" * 40, "2" * 40


def put(cache: Path, repository: str, commit: str, *files: str, refs: str = "main") -> Path:
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
    snapshot = put(tmp_path, "Qwen/Coder", NEW, "config.json", "model.safetensors")
    quantized = put(tmp_path, "someone/Coder-GGUF", NEW, "q4.gguf", "q8.gguf", "mmproj.gguf", "config.json")
    put(tmp_path, "someone/pickled", NEW, "config.json", "pytorch_model.bin")
    assert [(model.name, model.path) for model in hugging_face_models(tmp_path)] == [
        ("Qwen/Coder", snapshot),
        ("someone/Coder-GGUF:Q4", quantized / "q4.gguf"),
        ("someone/Coder-GGUF:Q8", quantized / "q8.gguf"),
    ]


def test_the_revision_is_that_of_main(tmp_path: Path) -> None:
    main = put(tmp_path, "a/b", OLD, "config.json", "model.safetensors")
    put(tmp_path, "a/b", NEW, "config.json", "model.safetensors", refs="pr-1")
    assert [model.path for model in hugging_face_models(tmp_path)] == [main]


def test_a_damaged_repository_is_listed_with_its_fault(tmp_path: Path) -> None:
    (tmp_path / "models--a--b" / "snapshots").mkdir(parents=True)
    (tmp_path / "models--a--b" / "snapshots" / "a file").touch()
    (found,) = hugging_face_models(tmp_path)
    assert "a file" in found.problem


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "HOME/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HF_HOME": "/h"}, "/h/hub"),
        ({"HF_HOME": "/h", "HF_HUB_CACHE": "/c"}, "/c"),
    ],
)
def test_folders(environment: dict[str, str], expected: str, tmp_path: Path) -> None:
    assert hugging_face_folders(environment, tmp_path) == (Path(expected.replace("HOME", str(tmp_path))),)


def test_no_cache(tmp_path: Path) -> None:
    assert list(hugging_face_models(tmp_path / "none")) == []
    (tmp_path / "file").touch()
    assert list(hugging_face_models(tmp_path / "file")) == []

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inference.checkpoints.other_programs import llama_cpp_folders, llama_cpp_models


def test_models_are_named_by_their_path(tmp_path: Path) -> None:
    for name in ("a_b_q4.gguf", "a_b_q4.gguf.etag", "manifest=a=b=latest.json", "two-00002-of-00002.gguf"):
        (tmp_path / name).touch()
    assert [model.name for model in llama_cpp_models(tmp_path)] == [str(tmp_path / "a_b_q4.gguf")]
    assert list(llama_cpp_models(tmp_path / "none")) == []


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
def test_folders(platform: str, environment: dict[str, str], expected: list[str], monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    home = [Path(path.replace("HOME", str(tmp_path))) for path in expected]
    assert list(llama_cpp_folders(environment, tmp_path)) == home

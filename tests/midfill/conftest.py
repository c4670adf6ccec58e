"""A tiny checkpoint, and a runtime folder that is not the user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import write_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("tiny-llama"), tie_word_embeddings=True))


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_gguf(tmp_path_factory.mktemp("tiny-gguf") / "tiny.gguf", Path(tiny_model)))


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty runtime folder, and no settings from the environment."""
    for name in [name for name in os.environ if name.startswith("MIDFILL_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(folder))
    return folder

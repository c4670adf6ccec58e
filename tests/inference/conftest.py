"""Tiny checkpoints with random weights, and the real vocabularies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inference.tokenization import TextTokenizer, read_tokenizer
from tests.inference.tiny import ROOT, write_checkpoint

VOCABULARIES = Path(os.environ.get("MIDFILL_SHARED", ROOT.parent / "shared")) / "vocab"


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny-llama"), tie_word_embeddings=True)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_checkpoint: Path) -> TextTokenizer:
    return read_tokenizer(tiny_checkpoint / "tokenizer.json")


@pytest.fixture(scope="session", params=["qwen2.5-coder", "starcoder2", "deepseek-coder"])
def real_tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    path = VOCABULARIES / request.param / "tokenizer.json"
    if not path.is_file():
        pytest.skip(f"the vocabulary {path} is not here")
    return read_tokenizer(path)

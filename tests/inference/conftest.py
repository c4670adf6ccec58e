"""Tiny checkpoints with random weights, and the real vocabularies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol import garbage
from tests.inference.simulated_cuda import SimulatedCuda
from tests.inference.tiny import ROOT, write_checkpoint

VOCABULARIES = Path(os.environ.get("MIDFILL_SHARED", ROOT.parent / "shared")) / "vocab"

REAL_GPU = bool(os.environ.get("MIDFILL_TEST_GPU"))
"""Set by `make test-gpu`."""


@pytest.fixture
def cuda() -> Iterator[SimulatedCuda | None]:
    """A CUDA device: simulated, with its counters, or None for a real one where REAL_GPU."""
    if REAL_GPU and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    with nullcontext() if REAL_GPU else SimulatedCuda() as device:
        yield device


@pytest.fixture
def simulated() -> Iterator[SimulatedCuda]:
    """A simulated CUDA device, whose faults a real one does not have."""
    if REAL_GPU:
        pytest.skip("it needs the simulated device's faults and counters")
    with SimulatedCuda() as device:
        yield device


@pytest.fixture
def quick_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core in the tests' process notices its end at once, and does not collect garbage when it loads or unloads.

    A full collection looks through all that the tests have imported, which takes most of a second.
    """
    from inference.core import process  # here, since tests of the GPU run without the packages of the server

    monkeypatch.setattr(process, "WATCH_EVERY_S", 0.02)
    for collection in ("keep_what_is_loaded", "collect_all"):
        monkeypatch.setattr(garbage, collection, lambda: None)


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

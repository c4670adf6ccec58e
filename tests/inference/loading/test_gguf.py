"""Whole engines on GGUF files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from inference.backends.cpu.library import unavailable_reason
from inference.backends.cpu.model import KernelModel
from inference.backends.generic import load_generic
from inference.backends.llama.decoder import Decoder
from inference.backends.model import Chunk
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import open_checkpoint
from inference.loading.components import load_decoder
from inference.loading.engine import load_engine
from inference.loading.kernel import load_on_kernel
from inference.loading.options import EngineOptions
from protocol.messages import CompletionRequest, Prompt
from protocol.settings import Weights
from tests.inference.generic_models import ARCHITECTURES, BLOCKS, write_model
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import KERNEL_SHAPE, write_gguf

REQUEST = CompletionRequest("a.py", Prompt("def f():\n", "\n", "    x"), 12)
CPU = torch.device("cpu")
compiled = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), **KERNEL_SHAPE)


def load(path: Path, *, kernel: bool = True, weights: Weights = "auto") -> Decoder | KernelModel:
    checkpoint = open_checkpoint(path, "tiny")
    assert isinstance(checkpoint.architecture, Architecture)
    options = EngineOptions(threads=1, kernel=kernel, weights=weights)
    if kernel:
        return load_on_kernel(checkpoint, checkpoint.architecture, 128, "float32", options, lambda *_: None)
    model = load_decoder(checkpoint, checkpoint.architecture, 128, CPU, torch.float32, options, lambda *_: None)
    assert isinstance(model, Decoder)
    return model


def probabilities(model: Decoder | KernelModel) -> list[float]:
    """Those of the best tokens behind each of some tokens."""
    (chosen,) = model.forward([Chunk(list(range(40, 56)), 0, model.new_workspace(), 16)])
    return [choice.logprob for choice in chosen]


@pytest.mark.parametrize("kernel", [pytest.param(True, marks=compiled), False])
@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_a_file_gives_the_tokens_of_its_checkpoint(folder: Path, tmp_path: Path, kind: str, kernel: bool) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", folder, kind)
    options = EngineOptions(str(folder), device="cpu", dtype="float32", threads=1, kernel=kernel)
    original, ours = (load_engine(replace(options, model=str(model))) for model in (folder, path))
    text = ours.complete(REQUEST).text
    assert text
    assert ours.info.chars_per_token == original.info.chars_per_token
    if kind == "F32":
        assert text == original.complete(REQUEST).text


@compiled
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_the_kernel_computes_with_the_quantized_weights(folder: Path, tmp_path: Path, kind: str) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", folder, kind, token_embd="Q8_0")
    quantized, dequantized = probabilities(load(path)), probabilities(load(path, kernel=False))
    errors = np.abs(np.subtract(quantized, dequantized))  # activations are quantized
    assert 0 < errors.mean() < 0.1
    assert errors.max() < 0.3


@compiled
def test_a_setting_that_the_file_has_already_changes_nothing(folder: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", folder, "Q8_0")
    assert probabilities(load(path, weights="int8")) == probabilities(load(path))
    assert probabilities(load(path, weights="int4")) != probabilities(load(path))


def test_a_family_of_transformers_runs_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}
    shape = {**BLOCKS, "num_key_value_heads": 2, "sliding_window": None, "rope_parameters": rope}
    monkeypatch.setitem(ARCHITECTURES, "Starcoder2", ("Starcoder2ForCausalLM", shape))
    original = write_model(tmp_path / "model", "Starcoder2")
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 64}
    changes = {f"starcoder2.rope.scaling.{key}": value for key, value in scaling.items()}
    path = write_gguf(tmp_path / "model.gguf", original, changes=changes)
    blob = path.rename(tmp_path / "sha256-123")  # as Ollama names it
    options = EngineOptions(str(original), device="cpu", dtype="float32", threads=1)
    ours, theirs = (load_engine(replace(options, model=str(model))) for model in (blob, original))
    assert ours.complete(REQUEST).text == theirs.complete(REQUEST).text != ""
    loaded = [load_generic(blob, 256, CPU, torch.float32, fields=open_checkpoint(blob, "blob").config)]
    loaded.append(load_generic(original, 256, CPU, torch.float32))
    tokens = [token % 599 for token in range(200)]
    of_file, of_folder = (model.logits(Chunk(tokens, 0, model.new_workspace(), 200)) for model in loaded)
    assert torch.allclose(of_file, of_folder, atol=1e-5 * float(of_folder.std()))

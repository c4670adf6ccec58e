from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference import loading
from inference.checkpoint import find_checkpoint
from inference.chunk import Chunk
from inference.generic import GenericModel
from inference.generic_loading import load_generic
from inference.loading import EngineOptions, load_engine
from protocol.errors import BadInput, BadModel
from protocol.messages import CompletionRequest, Prompt, StopRule
from protocol.settings import Weights
from tests.inference.generic_models import write_model

TOKENS = list(range(20))
ASKED = CompletionRequest("a.py", Prompt("def f(a):\n    return a\n", "\n", "x = f("), 6, StopRule(indent=0))


def last_logits(model: GenericModel) -> torch.Tensor:
    return model.logits(Chunk(TOKENS, 0, model.new_workspace(), wanted=1))


def test_accelerate_places_the_layers(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "GPTNeoX")
    alone = load_generic(folder, 64, torch.device("cpu"), torch.float32)
    placed = load_generic(folder, 64, None, torch.float32)
    assert torch.equal(last_logits(placed), last_logits(alone))


def test_model_larger_than_memory_runs_from_disk(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "GPTNeoX")
    alone = load_generic(folder, 64, torch.device("cpu"), torch.float32)
    placed = load_generic(folder, 64, None, torch.float32, max_memory={"cpu": 100_000})
    assert last_logits(placed).device.type == "cpu"
    assert torch.equal(last_logits(placed), last_logits(alone))


def test_what_transformers_cannot_load_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "GPTNeoX")
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadModel, match="cannot be loaded by transformers"):
        load_generic(folder, 64, None, torch.float32)


def test_llama_larger_than_the_gpu_runs_on_all_devices(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where our decoder's one device has no room; the text is the same."""
    options = EngineOptions(str(tiny_checkpoint), dtype="float32", kernel=False)
    expected = load_engine(options).complete(ASKED)
    monkeypatch.setattr(loading, "_is_too_large", lambda checkpoint, device, weights: True)
    placed = load_engine(options).complete(ASKED)
    assert placed.text == expected.text
    assert placed.mean_logprob == pytest.approx(expected.mean_logprob, abs=1e-4)
    assert load_engine(replace(options, device="cpu", exact=True)).complete(ASKED).text == expected.text
    with pytest.raises(BadInput, match="exact mode is for the Llama family on one device"):
        load_engine(replace(options, exact=True))
    with pytest.raises(BadInput, match="fp8 weights are for the Llama family on one device"):
        load_engine(replace(options, weights="fp8"))


@pytest.mark.parametrize(
    ("weights", "room", "too_large"),
    [("auto", 2, False), ("auto", 1, True), ("int8", 1, False), ("fp8", 1, False), ("fp8", 0.5, True)],
)
def test_room_on_a_gpu(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, weights: Weights, room: float, too_large: bool
) -> None:
    checkpoint = find_checkpoint(str(tiny_checkpoint))
    free = room * sum(file.size for file in checkpoint.weights())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**10))
    assert loading._is_too_large(checkpoint, torch.device("cuda:0"), weights) == too_large
    assert not loading._is_too_large(checkpoint, torch.device("cpu"), weights)

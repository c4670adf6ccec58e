from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.backends.generic import GenericModel, load_generic
from inference.backends.model import Chunk
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from protocol.errors import BadInput, BadModel
from tests.inference.generic_models import write_model
from tests.inference.simulated_cuda import SimulatedCuda

TOKENS = list(range(20))


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
    with pytest.raises(BadModel, match="transformers cannot load"):
        load_generic(folder, 64, None, torch.float32)


def test_a_model_larger_than_the_gpu_is_spread_if_it_is_no_llama(
    simulated: SimulatedCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path / "model", "GPTNeoX")
    options = EngineOptions(str(folder), dtype="float32", context_tokens=64)
    simulated.total_bytes = 2**20
    with pytest.raises(BadInput, match="int8 weights are supported only for the Llama family on one device"):
        load_engine(replace(options, weights="int8"))
    devices: list[torch.device | None] = []

    def load(path: Path, context: int, device: torch.device | None, *args: object, **_: object) -> GenericModel:
        devices.append(device)
        return load_generic(path, context, torch.device("cpu"), torch.float32)

    monkeypatch.setattr("inference.backends.generic.load_generic", load)
    engine = load_engine(options)
    assert devices == [None]  # accelerate chooses, which a simulated device cannot show
    assert engine.notice.startswith("runs on all devices: the model does not fit the GPU's free memory")


def test_transformers_say_the_same_of_a_llama(tiny_checkpoint: Path) -> None:
    placed = load_generic(tiny_checkpoint, 64, None, torch.float32)
    ours = load_engine(EngineOptions(str(tiny_checkpoint), device="cpu", dtype="float32", kernel=False))._model
    chunk = Chunk(TOKENS, 0, placed.new_workspace(), wanted=1)
    ((found,),) = placed.forward([chunk])
    ((expected,),) = ours.forward([replace(chunk, workspace=ours.new_workspace())])
    assert found.token_id == expected.token_id
    assert found.logprob == pytest.approx(expected.logprob, abs=1e-4)

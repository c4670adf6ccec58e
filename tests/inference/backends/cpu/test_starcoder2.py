"""StarCoder2 on the kernel (LayerNorm, biases, GELU without a gate, a window) against transformers, warm and cold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs
from torch import Tensor

from inference.backends.cpu.library import LEVEL_VARIABLE, Level
from inference.backends.generic import GenericModel
from inference.backends.model import Chunk
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from protocol.settings import Weights
from tests.inference import generic_models
from tests.inference.backends.cpu.models import forward
from tests.inference.backends.cpu.test_decoder import TOLERANCES, distance
from tests.inference.backends.cpu.test_recurrence import EPSILON, LEVELS_HERE, load, logits_of, rounded_to, token_ids
from tests.inference.engine.test_recurrent import BUDGET, EDITS, TOLERANCE, Typist
from tests.inference.generic_models import make_model, write_model
from tests.inference.tiny_gguf import write_gguf

pytestmark = pytest.mark.usefixtures("compiled")

WINDOW = {"starcoder2.attention.sliding_window": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("starcoder2"), "Starcoder2", on_kernel=True)


def run(path: Path, cuts: tuple[int, ...], threads: int = 2, weights: Weights = "auto") -> Tensor:
    """Logits of all tokens, in calls that end at these places."""
    model = load(path, threads, weights)
    workspace, logits = model.new_workspace(), []
    for start, stop in zip((0, *cuts), (*cuts, 80), strict=True):
        logits += forward(model._kernel, [Chunk(token_ids()[start:stop], start, workspace, stop - start)])
    return torch.cat(logits)


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_logits_are_those_of_transformers(folder: Path, tmp_path: Path, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    """From both kinds of files, behind a window that slides, with the same bits however the tokens are cut."""
    monkeypatch.setenv(LEVEL_VARIABLE, level)
    expected = logits_of(make_model("Starcoder2", on_kernel=True))
    for path in (folder, write_gguf(tmp_path / "model.gguf", folder, changes=WINDOW)):
        found = run(path, (30, 31, 34, 60))
        torch.testing.assert_close(found, expected, rtol=0, atol=EPSILON * float(expected.std()))
        assert torch.equal(run(path, tuple(range(1, 80)), threads=3), found)


def test_a_window_of_several_chunks_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which the first are behind it for some tokens of a call, and then for all."""
    kind, config = generic_models.STARCODER2
    monkeypatch.setattr(generic_models, "STARCODER2", (kind, config | {"sliding_window": 300, "max_position_embeddings": 1024}))
    model = load(write_model(tmp_path, "Starcoder2", on_kernel=True))
    ids = [(7 * place) % 500 for place in range(700)]
    with torch.inference_mode():
        expected = make_model("Starcoder2", on_kernel=True)(torch.tensor([ids]), use_cache=False).logits[0].float()
    workspace = model.new_workspace()
    logits = [forward(model._kernel, [Chunk(ids[start : start + 28], start, workspace, 28)])[0] for start in range(0, 700, 28)]
    torch.testing.assert_close(torch.cat(logits), expected, rtol=0, atol=EPSILON * float(expected.std()))


@pytest.mark.parametrize("quantized", ["int8", "int4", "Q8_0", "Q4_0"])
def test_quantized_weights_give_their_logits(folder: Path, tmp_path: Path, quantized: str) -> None:
    rounded, is_file = make_model("Starcoder2", on_kernel=True), quantized.startswith("Q")
    for name, weight in rounded.named_parameters():
        if weight.dim() == 2:
            outer = "embed" in name or "lm_head" in name
            with torch.no_grad():
                weight.copy_(rounded_to(weight, "int8" if outer and not is_file else quantized))
    path = write_gguf(tmp_path / "model.gguf", folder, quantized, WINDOW) if is_file else folder
    found = run(path, (30, 60), weights="auto" if is_file else quantized)  # type: ignore[arg-type]
    assert distance(found, logits_of(rounded)) < TOLERANCES["int8"]


@pytest.mark.timeout(300 + 10 * EDITS)
def test_warm_is_as_cold(folder: Path) -> None:
    options = EngineOptions(str(folder), dtype="float32", device="cpu", prefill_chunk=128, threads=1)
    cold, *warm = (load_engine(replace(options, speculation=on)) for on in (False, True, False))
    typist, suggested = Typist(3, 8, BUDGET), ""
    for edit in range(EDITS or 12):
        request, _ = typist.next(suggested)
        expected = cold.complete(structs.replace(request, reuse=False))
        for engine in warm:
            answer = engine.complete(request)
            assert answer.text == expected.text, edit
            assert (answer.mean_logprob or 0) == pytest.approx(expected.mean_logprob or 0, abs=TOLERANCE)
        suggested = answer.text


def test_without_the_kernel_transformers_runs_both_kinds_of_files(folder: Path, tmp_path: Path) -> None:
    expected = logits_of(make_model("Starcoder2", on_kernel=True))
    for path in (folder, write_gguf(tmp_path / "model.gguf", folder, changes=WINDOW)):
        options = EngineOptions(str(path), device="cpu", dtype="float32", kernel=False)
        model = load_engine(options)._model  # type: ignore[attr-defined]
        assert isinstance(model, GenericModel)
        logits = model.logits(Chunk(token_ids(), 0, model.new_workspace(), 80))
        torch.testing.assert_close(logits, expected, rtol=0, atol=EPSILON * float(expected.std()))

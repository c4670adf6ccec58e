"""Models that transformers' own modules run, against transformers itself."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

from inference.backends.generic import GenericModel, SplitWorkspace, load_generic
from inference.backends.model import Chunk
from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from kv_store.interface import Workspace
from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace
from protocol.errors import BadInput, BadModel
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.generic_models import ARCHITECTURES, make_model, write_model
from tests.inference.requests import complete_cancelled
from tests.inference.simulated_cuda import SimulatedCuda
from tests.kv_store.integrity import check_integrity

EPSILON = 3e-5
PREFIX = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\n"
SUFFIX = "\n\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture(scope="module", params=["GPTBigCode", "Gemma2"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with keys and values of a single head, one with sliding windows."""
    return write_model(tmp_path_factory.mktemp(request.param), request.param)


def ask(increment: str, *, reuse: bool = True, max_tokens: int = 5) -> CompletionRequest:
    return CompletionRequest("a.py", Prompt(PREFIX, SUFFIX, increment), max_tokens, StopRule(indent=0), reuse)


def load(checkpoint: Path, **options: object) -> Engine:
    return load_engine(EngineOptions(str(checkpoint), dtype="float32", device="cpu", prefill_chunk=32, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_logits_are_those_of_transformers(kind: str) -> None:
    """In one forward, token by token, after a crop, and with KV that came from elsewhere."""
    reference = make_model(kind)
    token_ids = torch.randint(0, 500, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        expected = reference(torch.tensor([token_ids]), use_cache=False).logits[0].float()
    model = GenericModel(make_model(kind), 64, kind)
    workspace, other = model.new_workspace(), model.new_workspace()

    def check(start: int, stop: int, wanted: int = 1, on: Workspace = workspace) -> None:
        logits = model.logits(Chunk(token_ids[start:stop], start, on, wanted))
        assert torch.allclose(logits, expected[stop - wanted : stop], atol=EPSILON), (start, stop)

    check(0, 40)
    check(40, 41)
    check(41, 42)
    model.forward([Chunk([5, 6, 7], 20, workspace)])
    check(20, 50, wanted=5)
    other.import_kv(0, workspace.export_kv(0, 50), 50)
    check(50, 60, on=other)


def test_sequences_share_a_forward() -> None:
    model = GenericModel(make_model("Gemma2"), 64, "Gemma2")
    token_ids = torch.randint(0, 500, (60,), generator=torch.Generator().manual_seed(2)).tolist()

    def chunks() -> list[Chunk]:
        return [Chunk(part, 0, model.new_workspace(), wanted) for part, wanted in ((token_ids, 3), (token_ids[:20], 0))]

    three, none = model.forward(chunks())
    assert none == ()
    assert three == model.forward(chunks()[:1])[0]
    assert [choice.token_id for choice in three] == model.logits(chunks()[0]).argmax(-1).tolist()


def test_warm_is_as_cold(checkpoint: Path) -> None:
    warm, cold = load(checkpoint, store_budget_bytes=2**16), load(checkpoint)
    rng = random.Random(5)
    text = ""
    for _ in range(12):
        keep = len(text) if rng.random() < 0.7 else rng.randint(0, len(text))
        text = text[:keep] + rng.choice(["def ", "main", "(", "12", "\n    ", "ret", "'é'"])
        answer, expected = warm.complete(ask(text)), cold.complete(ask(text, reuse=False))
        assert answer.text == expected.text
        assert answer.mean_logprob == pytest.approx(expected.mean_logprob, abs=1e-4)
        check_integrity(warm)


def test_a_keystroke_is_a_cache_hit_and_a_cancelled_request_stops(checkpoint: Path) -> None:
    engine = load(checkpoint)
    engine.complete(ask("x = 1", max_tokens=0))
    assert engine.complete(ask("x = 12")).usage.recomputed_tokens <= 2
    cancelled = complete_cancelled(engine, structs.replace(ask("y"), prompt=Prompt("other", SUFFIX, "1")), 0)
    assert (cancelled.finish_reason, cancelled.usage.forwards) == ("cancelled", 0)


def test_keys_and_values_of_several_shapes_are_refused() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    latent = {"kv_lora_rank": 8, "q_lora_rank": None, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4}
    model = DeepseekV2ForCausalLM(DeepseekV2Config(vocab_size=600, first_k_dense_replace=1, **sizes, **latent))
    with pytest.raises(BadModel, match="here: models of type 'deepseek_v2' do not keep keys and values of one shape"):
        GenericModel(model, 64, "here")


TOKENS = list(range(20))


def last_logits(model: GenericModel) -> torch.Tensor:
    return model.logits(Chunk(TOKENS, 0, model.new_workspace(), wanted=1))


@pytest.mark.parametrize("max_memory", [None, {"cpu": 100_000}])
def test_accelerate_places_the_layers_and_a_model_larger_than_memory_runs_from_disk(
    tmp_path: Path, max_memory: dict[str | int, int] | None
) -> None:
    folder = write_model(tmp_path / "model", "GPTNeoX")
    alone = load_generic(folder, 64, torch.device("cpu"), torch.float32)
    placed = load_generic(folder, 64, None, torch.float32, max_memory=max_memory)
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
    with pytest.raises(BadInput, match="int8 weights are supported only for models that midfill's own decoders run"):
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


SHAPE = KVShape(num_layers=3, num_kv_heads=2, head_dim=4, dtype="float32")
CPU = torch.device("cpu")
ELSEWHERE = torch.device("cpu", 0)  # another device to everything that compares devices


def filled(devices: list[torch.device]) -> tuple[SplitWorkspace, KVWorkspace]:
    split, whole = SplitWorkspace(SHAPE, 8, devices), KVWorkspace(SHAPE, 8)
    payload = torch.randn(SHAPE.of_tokens(8), generator=torch.Generator().manual_seed(0))
    split.import_kv(0, payload, 8)
    whole.import_kv(0, payload, 8)
    return split, whole


@pytest.mark.parametrize("devices", [[CPU] * 3, [CPU, ELSEWHERE, ELSEWHERE], [CPU, ELSEWHERE, CPU]])
def test_payloads_are_those_of_one_workspace(devices: list[torch.device]) -> None:
    split, whole = filled(devices)
    assert split.bytes_per_token == whole.bytes_per_token
    assert torch.equal(split.export_kv(2, 7), whole.export_kv(2, 7))
    payload = torch.randn(SHAPE.of_tokens(5))
    for workspace in (split, whole):
        workspace.import_kv(1, payload, 3, skip=2)
    assert torch.equal(split.export_kv(0, 8), whole.export_kv(0, 8))
    for index, (keys, values) in enumerate(split.layers()):
        assert torch.equal(keys, whole.layer(index)[0])
        assert torch.equal(values, whole.layer(index)[1])


def test_payloads_of_another_shape_are_refused() -> None:
    split, _ = filled([CPU] * 3)
    with pytest.raises(ValueError, match="the payload has 2 layers, but the model has 3"):
        split.import_kv(0, torch.zeros(2, 2, 2, 1, 4), 1)
    with pytest.raises(ValueError, match="exceed a workspace of 8"):
        split.import_kv(7, torch.zeros(SHAPE.of_tokens(2)), 2)


def test_a_file_that_is_written_over_changes_no_model_that_runs(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint, folder)
    model = load_generic(folder, 64, torch.device("cpu"), torch.float32)
    chunk = Chunk([1, 2, 3], 0, model.new_workspace(), 3)
    before, file = model.logits(chunk).clone(), folder / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))  # in place
    assert torch.equal(model.logits(replace(chunk, workspace=model.new_workspace())), before)

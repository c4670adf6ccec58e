"""Models that transformers' own modules run, against transformers itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

from inference.backends.generic import GenericModel
from inference.backends.model import Chunk
from inference.engine.engine import Engine
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from kv_store.interface import Workspace
from protocol.errors import BadInput, BadModel
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.generic_models import ARCHITECTURES, make_model, write_model
from tests.inference.requests import complete_cancelled
from tests.inference.tiny import edit_config

EPSILON = 3e-5
PREFIX = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\n"
SUFFIX = "\n\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture(scope="module", params=ARCHITECTURES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def checkpoint(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp(kind), kind)


def ask(increment: str, *, reuse: bool = True, max_tokens: int = 5) -> CompletionRequest:
    return CompletionRequest("a.py", Prompt(PREFIX, SUFFIX, increment), max_tokens, StopRule(indent=0), reuse)


def load(checkpoint: Path, **options: object) -> Engine:
    return load_engine(EngineOptions(str(checkpoint), dtype="float32", device="cpu", prefill_chunk=32, **options))  # type: ignore[arg-type]


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


def test_sequences_share_a_forward(kind: str) -> None:
    model = GenericModel(make_model(kind), 64, kind)
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
        warm.check_integrity()


def test_a_keystroke_is_a_cache_hit_and_a_cancelled_request_stops(checkpoint: Path) -> None:
    engine = load(checkpoint)
    engine.complete(ask("x = 1", max_tokens=0))
    assert engine.complete(ask("x = 12")).usage.recomputed_tokens <= 2
    cancelled = complete_cancelled(engine, replace(ask("y"), prompt=Prompt("other", SUFFIX, "1")), 0)
    assert (cancelled.finish_reason, cancelled.usage.forwards) == ("cancelled", 0)


def test_dry_engine_needs_the_same_prompt(checkpoint: Path) -> None:
    dry = load_dry_engine(EngineOptions(str(checkpoint)))
    assert dry.complete(ask("x = 1")).usage.prompt_tokens == load(checkpoint).complete(ask("x = 1")).usage.prompt_tokens


def test_what_only_our_decoder_has_is_refused(checkpoint: Path) -> None:
    with pytest.raises(BadInput, match="int8 weights are supported only for the Llama family on one device"):
        load(checkpoint, weights="int8")


def test_keys_and_values_of_several_shapes_are_refused() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    latent = {"kv_lora_rank": 8, "q_lora_rank": None, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4}
    model = DeepseekV2ForCausalLM(DeepseekV2Config(vocab_size=600, first_k_dense_replace=1, **sizes, **latent))
    with pytest.raises(BadModel, match="here: models of type 'deepseek_v2' do not keep keys and values of one shape"):
        GenericModel(model, 64, "here")


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "GPTNeoX")
    edit_config(folder, hidden_size=64)
    with pytest.raises(BadModel, match="transformers cannot load"):
        load(folder)

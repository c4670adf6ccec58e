"""Exact mode on tiny random models: the same bits, whatever was resident."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.backends.llama.exact import EXACT_TOKENS
from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.slots import last_slot

BLOCK = StopRule(indent=0)
PREFIX = "def f(a, b):\n    return a + b\n\n\n" * 6


@pytest.fixture(scope="module")
def engines(tiny_checkpoint: Path) -> tuple[Engine, Engine]:
    options = EngineOptions(str(tiny_checkpoint), dtype="float32", prefill_chunk=48, exact=True, slots=1)
    return load_engine(options), load_engine(options)


def request(prompt: Prompt, *, reuse: bool = True, max_tokens: int = 6) -> CompletionRequest:
    return CompletionRequest("s", prompt, max_tokens, BLOCK, reuse)


def resident_kv(engine: Engine) -> torch.Tensor:
    """The KV of all tokens in its workspace, [layers, 2, kv_heads, tokens, head_dim]."""
    resident = last_slot(engine)
    return resident.workspace.export_kv(0, len(resident.token_ids))  # type: ignore[return-value]


EDITS = st.lists(
    st.tuples(st.integers(0, len(PREFIX)), st.text("ab (\n", max_size=6), st.booleans()), min_size=1, max_size=5
)


@settings(max_examples=25, deadline=None)
@given(edits=EDITS)
def test_cached_and_cold_are_the_same_to_the_bit(
    engines: tuple[Engine, Engine], edits: list[tuple[int, str, bool]]
) -> None:
    warm, cold = engines
    for length, increment, cancel in edits:
        prompt = Prompt(PREFIX[:length], "\nend\n", increment)
        if cancel:
            warm.complete(request(Prompt(PREFIX[:length], "other", increment)), lambda: True)
        answer = warm.complete(request(prompt))
        expected = cold.complete(request(prompt, reuse=False))
        assert (answer.text, answer.mean_logprob) == (expected.text, expected.mean_logprob)
        assert torch.equal(resident_kv(warm), resident_kv(cold))


def test_a_keystroke_computes_at_most_one_forward_more_than_its_own(engines: tuple[Engine, Engine]) -> None:
    engine, _ = engines
    engine.complete(request(Prompt(PREFIX, "\nend\n", "x"), max_tokens=1))
    usage = engine.complete(request(Prompt(PREFIX, "\nend\n", "x ="), max_tokens=1)).usage
    assert usage.recomputed_tokens <= EXACT_TOKENS + 2


def test_the_text_is_that_of_the_ordinary_decoder(engines: tuple[Engine, Engine], tiny_checkpoint: Path) -> None:
    ordinary = load_engine(EngineOptions(str(tiny_checkpoint), dtype="float32"))
    prompt = Prompt(PREFIX, "\nend\n", "x = f(")
    assert engines[0].complete(request(prompt)).text == ordinary.complete(request(prompt)).text


def test_the_context_is_cut_to_whole_forwards(tiny_checkpoint: Path) -> None:
    engine = load_engine(EngineOptions(str(tiny_checkpoint), context_tokens=100, exact=True))
    assert engine.info.context_tokens == 96

"""Tiny models on a real llama-server: what keys and anchors cost hybrids, that texts are the cold ones and midfill's.

A model whose state cannot be cropped goes on from a copy of it; llama-server makes one four tokens before the end of
each prompt. `-s` shows the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import ne
from pathlib import Path
from statistics import median

import pytest

from bench.llama_server import run_llama_server
from inference.checkpoints.checkpoint import open_checkpoint
from inference.loading.options import EngineOptions
from inference.remote import llama_server
from inference.remote.connecting import connect
from inference.remote.engine import RemoteEngine
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import common_prefix_length
from protocol.messages import CompletionRequest, Prompt
from tests.engines.test_gguf_agreement import MOST_DIFFERENT, choices, continuation, load
from tests.inference.generic_models import ON_KERNEL, write_model
from tests.inference.tiny import training_text, write_tokenizer
from tests.inference.tiny_gguf import write_gguf
from tests.inference.tiny_hybrid import convert, write_hybrid

pytestmark = pytest.mark.engines

FEWEST, _ = llama_server.CHECKPOINTS
COPY_TOKENS = llama_server.COPY_TOKENS
CHANGEABLE = 2  # tokens at the end of a prefix that other text behind it may change
LINE = "    let found = self.items.iter().filter(|item| item.is_open);"
Ask = Callable[..., CompletionRequest]


@pytest.fixture
def engine(llama_server_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteEngine]:
    """With the fewest copies, as of a model with large states."""
    monkeypatch.setattr(llama_server, "CHECKPOINTS", (FEWEST, FEWEST))
    write_tokenizer(tmp_path / "tokenizer.json", 3000)
    model = write_hybrid(tmp_path / "hybrid.gguf", tmp_path / "tokenizer.json")
    options = EngineOptions(
        str(model), engine=f"llama-server={llama_server_program}", context_tokens=4096, slots=2, threads=1, healing="off"
    )
    engine = connect(options)
    yield engine
    engine.close()


def cut(engine: RemoteEngine, start: int, tokens: int) -> str:
    """So many tokens of code, in whole lines, from a line on."""
    lines = training_text().splitlines(keepends=True)[start:]
    for count in range(1, len(lines)):
        if engine.tokenizer.count_tokens("".join(lines[:count])) >= tokens:
            return "".join(lines[:count])
    raise AssertionError("the text is too short")


def cost(engine: RemoteEngine, prompt: Prompt, session: str = "me/a", max_tokens: int = 4) -> tuple[int, int]:
    """Recomputed tokens, and all of the prompt."""
    usage = engine.complete(CompletionRequest(session, prompt, max_tokens)).usage
    return usage.recomputed_tokens, usage.prompt_tokens


def test_a_keystroke_recomputes_from_the_last_copy_and_its_text_is_the_cold_one(engine: RemoteEngine) -> None:
    prefix, suffix = cut(engine, 0, 600), cut(engine, 100, 300)
    cost(engine, Prompt(prefix, suffix), max_tokens=0)
    costs = []
    for end in range(1, len(LINE)):
        request = CompletionRequest("me/a", Prompt(prefix, suffix, LINE[:end]), 8)
        warm = engine.complete(request)
        costs.append(warm.usage.recomputed_tokens)
        if end % 12 == 0:
            cold = engine.complete(CompletionRequest("me/b", request.prompt, 8, reuse=False))
            assert warm.text == cold.text
    print(f"recomputed per key: p50 {median(costs)}, at most {max(costs)}")  # noqa: T201
    assert median(costs) <= COPY_TOKENS + 1
    assert max(costs) <= 3 * COPY_TOKENS
    assert engine.notice == ""


def test_a_new_anchor_computes_what_it_does_not_share_with_the_old_one(engine: RemoteEngine) -> None:
    """The new anchor's prefix continues the old one: prompts of 1,000 tokens that share 700, and many keys between."""
    prefix, suffix = cut(engine, 0, 700), cut(engine, 200, 300)
    grown = prefix + cut(engine, len(prefix.splitlines()), 20)
    old, new = (tokenize_prompt(Prompt(text, suffix), engine.tokenizer, 4096, 4).token_ids for text in (prefix, grown))
    shared = common_prefix_length(old, new)
    costs = {}
    for session in ("prefetch", "no prefetch"):
        if session == "prefetch":
            cost(engine, Prompt(prefix, suffix), session, max_tokens=0)
        for end in range(len(LINE)):  # more keys than the slot keeps copies
            cost(engine, Prompt(prefix, suffix, LINE[:end]), session)
        costs[session], total = cost(engine, Prompt(grown, suffix), session)
    print(f"a new anchor: {costs} of {total}, which shares {shared}")  # noqa: T201
    for recomputed in costs.values():
        assert total - shared <= recomputed <= total - shared + CHANGEABLE


@pytest.mark.parametrize("kind", [*ON_KERNEL, "Starcoder2"])
def test_llama_cpp_finds_the_same_model_in_a_file(llama_server_program: Path, tmp_path: Path, kind: str) -> None:
    to_gguf = write_gguf if kind == "Starcoder2" else convert
    file = to_gguf(tmp_path / "model.gguf", write_model(tmp_path / "model", kind, on_kernel=True))
    prompt = list(range(7, 300, 3))
    with run_llama_server([str(llama_server_program)], file, 1, spm=False) as server:
        theirs = continuation(server, prompt)
    ours = choices(load(open_checkpoint(file, kind), kernel=True), [*prompt, *theirs[:-1]], len(theirs))
    assert sum(map(ne, ours, theirs)) <= MOST_DIFFERENT * len(theirs)

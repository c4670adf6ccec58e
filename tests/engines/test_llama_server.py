"""A recorded session through a real llama-server: what it recomputes, and that its texts are its own cold ones.

llama-server computes a token behind a resident prompt in another batch than the whole prompt. With weights and KV in float32 and
without flash attention only the order of sums differs, so tokens are the same, and log-probabilities but for NOISE.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import psutil
import pytest

from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading.options import EngineOptions, engine_options
from inference.remote.connecting import connect, open_engine
from inference.remote.engine import RemoteEngine
from inference.remote.llama_server import LlamaServer, LlamaServerChild
from inference.remote.server import GenerationQuery, Piece, Token
from midfill.replay.command import ReplayOptions
from midfill.replay.player import replay
from midfill.replay.results import summary
from midfill.replay.trace import read_trace
from protocol.errors import EngineUnavailable
from protocol.messages import CompletionRequest, Prompt, Sampling, StopRule
from protocol.settings import Settings
from tests.engines.conftest import SLOTS
from tests.inference.requests import complete_cancelled

pytestmark = pytest.mark.engines

TRACE = Path(__file__).parents[1] / "data" / "rustcode-3000-3400.json.gz"
HIT_SHARE = 0.95
CHECKED = 60
NOISE = 0.001  # nats
PATIENCE_S = 60.0
CODE = "def first(values):\n    return values[0]\n\n\n" * 20
SUFFIX = "\n\n\ndef last(values):\n    return values[-1]\n"


@pytest.fixture
def engine(settings: Settings) -> Iterator[RemoteEngine]:
    engine = connect(engine_options(settings))
    yield engine
    engine.close()


def ask(increment: str, session: str = "me/a", **changes: object) -> CompletionRequest:
    fields = {"session": session, "prompt": Prompt(CODE, SUFFIX, increment), "max_tokens": 12, **changes}
    return CompletionRequest(**fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Answer:
    """What llama-server generated for one query."""

    query: GenerationQuery
    tokens: list[Token] = field(default_factory=list)


def record_answers(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """The list to which every answer with text is added from now on."""
    answers: list[Answer] = []
    stream = LlamaServer.stream

    async def recorded(self: LlamaServer, query: GenerationQuery) -> AsyncGenerator[Piece]:
        answer = Answer(query)
        if query.max_tokens:
            answers.append(answer)
        async with aclosing(stream(self, query)) as pieces:
            async for piece in pieces:
                answer.tokens.extend(piece.tokens)
                yield piece

    monkeypatch.setattr(LlamaServer, "stream", recorded)
    return answers


def differences(warm: Answer, cold: Answer) -> Iterator[float]:
    """By how many nats the tokens' log-probabilities differ; the prompt and the tokens are the same."""
    prompt = cold.query.token_ids
    assert warm.query.reuse
    assert warm.query.token_ids[: len(prompt)] == prompt  # behind it are tokens that earlier keys chose
    chosen = [*(Token(id_, None) for id_ in warm.query.token_ids[len(prompt) :]), *warm.tokens]
    for ours, theirs in zip(chosen, cold.tokens, strict=False):  # a text that ends for midfill is read no further
        assert ours.id == theirs.id or None in (ours.id, theirs.id)  # unknown where a token's character is incomplete
        if ours.logprob is not None and theirs.logprob is not None:
            yield abs(ours.logprob - theirs.logprob)


@pytest.mark.parametrize("healing", ["off", "on"])
async def test_a_recorded_session_hits_and_its_texts_are_the_cold_ones(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, healing: Literal["off", "on"]
) -> None:
    settings = replace(settings, healing=healing, shorten_unlikely=False)  # so that whole texts are compared
    options = ReplayOptions(engine=True, strategies="efim", moves=True, language="rust", verify=CHECKED)
    answers = record_answers(monkeypatch)
    result = await replay(read_trace(TRACE), settings, options, lambda _strategy, _done: None)
    figures = summary(result)["strategies"]["efim"]
    print(figures)  # noqa: T201 - the figures, with pytest -s
    assert figures["hit_share"] >= HIT_SHARE
    assert figures["recomputed_tokens"]["p50"] <= 3
    pairs = [pair for pair in pairwise(answers) if not pair[1].query.reuse]
    found = [nats for pair in pairs for nats in differences(*pair)]
    print(f"{len(pairs)} compared: {len(found)} log-probabilities differ by {max(found):.6f} at most")  # noqa: T201
    assert len(pairs) == CHECKED
    assert max(found) < NOISE
    assert result.strategies[0].errors == ()


def test_healing_forces_what_was_typed(engine: RemoteEngine) -> None:
    for typed in ("    re", "    return val", 'x = "é', "if (", "\n", "\t\tx", "a\\b", "naïve = [", "日本"):
        completion = engine.complete(ask(typed, stop=StopRule(indent=0)))
        assert completion.text
        assert completion.usage.generated_tokens == 12 or completion.finish_reason != "length"
    heals = engine.complete(ask("    retu"))
    assert heals.text.startswith("rn ")


def test_a_keystroke_costs_what_was_typed(engine: RemoteEngine) -> None:
    engine.complete(ask("", max_tokens=0))
    line = "    return values[0] + values[1]"
    costs = [engine.complete(ask(line[:end])).usage.recomputed_tokens for end in range(1, len(line) + 1)]
    assert max(costs) <= 4
    assert engine.notice == ""


def test_sessions_keep_their_slots_and_a_lost_one_is_reported(engine: RemoteEngine, settings: Settings) -> None:
    sessions = [f"me/{number}" for number in range(SLOTS)]
    for session in sessions:
        engine.complete(ask(session, session))
    for session in sessions:
        assert engine.complete(ask(session + "x", session)).usage.recomputed_tokens <= 4
    other = connect(engine_options(settings))  # as another core with the same server
    for number in range(SLOTS):
        other.complete(CompletionRequest(f"you/{number}", Prompt("x = 1\n" * 200, ""), 4))
    other.close()
    assert engine.complete(ask(sessions[0] + "x", sessions[0])).usage.recomputed_tokens > 100
    assert "dropped" in engine.notice


def test_an_excluded_document_is_not_resident_any_more(engine: RemoteEngine) -> None:
    for number in range(SLOTS):
        engine.complete(ask("x", f"me/{number}"))
    for number in range(SLOTS):
        engine.forget(str(number))
    usage = engine.complete(ask("x")).usage
    assert usage.recomputed_tokens >= usage.prompt_tokens - 1  # one token at most was the slot's and the prompt's


def test_alternatives_differ(engine: RemoteEngine) -> None:
    completion = engine.complete(ask("    return ", alternatives=3))
    texts = [completion.text, *(other.text for other in completion.alternatives)]
    assert len(texts) == len(set(texts)) == 4


def test_top_p_counts_the_probabilities_that_temperature_leaves(engine: RemoteEngine) -> None:
    def texts(top_k: int) -> set[str]:
        drawn = (Sampling(temperature=1e4, top_p=0.4, top_k=top_k, seed=seed) for seed in range(4))
        return {engine.complete(ask("    return ", sampling=sampling)).text for sampling in drawn}

    assert len(texts(top_k=2)) == 1  # of two alike, 0.4 has the first one alone
    assert len(texts(top_k=10)) == 4


def test_a_cancelled_request_frees_its_slot(engine: RemoteEngine) -> None:
    long = CompletionRequest(
        "me/a", Prompt(CODE * 3, SUFFIX, "x = [1, 2, 3, 4"), 2000, StopRule(indent=0)
    )  # goes on to its limit
    assert complete_cancelled(engine, long, 1).finish_reason == "cancelled"
    started = time.monotonic()
    engine.complete(ask("x"))
    assert time.monotonic() - started < PATIENCE_S  # 2,000 tokens would take longer than a keystroke waits


def test_the_child_ends_with_the_engine(llama_server_program: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = EngineOptions(str(tiny_gguf), engine=f"llama-server={llama_server_program}", context_tokens=512)
    tokenizer = find_checkpoint("tiny").tokenizer()
    monkeypatch.setattr("inference.remote.connecting.find_tokenizer", lambda *_: tokenizer)
    engine = open_engine(options)
    assert engine.info.context_tokens == 512
    servers = [child for child in psutil.Process().children(recursive=True) if "llama-server" in child.name()]
    assert servers
    engine.close()
    _, alive = psutil.wait_procs(servers, PATIENCE_S)
    assert not alive


def test_a_server_that_dies_is_reported_and_its_successor_is_found(settings: Settings, llama_server: LlamaServerChild) -> None:
    engine = connect(engine_options(replace(settings)))
    engine.complete(ask("x"))
    llama_server.close()
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        engine.complete(ask("xy"))
    assert engine.is_gone
    engine.close()
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        connect(engine_options(settings))

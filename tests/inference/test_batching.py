"""Several requests share forwards: what that saves, who waits for whom, and that no text changes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from inference.backends.model import Choice, Chunk, Model
from inference.engine.chunk_scheduler import KEYS_SHARE, SMALL_CHUNK
from inference.engine.engine import Engine
from inference.engine.request import Request
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.requests import begin, finish
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import write_gguf
from tests.kv_store.integrity import check_integrity

REQUESTS = int(os.environ.get("RANDOM_REQUESTS", "0"))
"""As many are compared beyond what hypothesis chooses; set by `make test-random`."""
SOURCE = Path(__file__).read_text(encoding="utf-8")
CHUNK = 64


class WatchedModel:
    """A model that notes how many tokens every sequence has in each forward."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.forwards: list[list[int]] = []
        self.failure: Exception | None = None

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        assert len({id(chunk.workspace) for chunk in chunks}) == len(chunks)
        self.forwards.append([len(chunk.token_ids) for chunk in chunks])
        if self.failure is not None:
            raise self.failure
        return self._model.forward(chunks)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that the CPU kernel can run."""
    folder = tmp_path_factory.mktemp("kernel-sized")
    return write_checkpoint(folder, hidden_size=64, num_attention_heads=2, num_key_value_heads=1)


@pytest.fixture(scope="module")
def options(checkpoint: Path) -> EngineOptions:
    return EngineOptions(str(checkpoint), dtype="float32", context_tokens=512, prefill_chunk=CHUNK, threads=1, slots=3)


@pytest.fixture
def engine(options: EngineOptions) -> Engine:
    return load_engine(options)


@pytest.fixture
def watched(engine: Engine) -> WatchedModel:
    engine._model = model = WatchedModel(engine._model)  # type: ignore[assignment]
    return model


def ask(session: str, cut: int = 400, max_tokens: int = 8, increment: str = "", alternatives: int = 0) -> CompletionRequest:
    prompt = Prompt(f"# {session}\n" + SOURCE[:cut], SOURCE[cut : cut + 60], increment)
    return CompletionRequest(session, prompt, max_tokens, StopRule(indent=0), alternatives=alternatives)


def test_sessions_that_decode_together_share_their_forwards(engine: Engine, watched: WatchedModel) -> None:
    for session in "abc":
        engine.complete(ask(session, max_tokens=0))
    watched.forwards.clear()
    answers = finish(
        engine, *(begin(engine, ask(session, max_tokens=tokens)) for session, tokens in zip("abc", (8, 3, 6), strict=True))
    )
    forwards = [answer.usage.forwards for answer in answers]
    assert len(watched.forwards) == max(forwards) < sum(forwards)
    assert [len(shared) for shared in watched.forwards] == [
        sum(count > number for count in forwards) for number in range(max(forwards))
    ]


def test_prompts_take_turns_and_keystrokes_do_not_wait_for_them(engine: Engine, watched: WatchedModel) -> None:
    engine.complete(ask("a"))
    watched.forwards.clear()
    long = [begin(engine, ask("b", cut=900)), begin(engine, ask("c", cut=900))]
    engine.step()
    keystroke = begin(engine, ask("a", increment="x"))
    forwards = len(watched.forwards)
    (answer,) = finish(engine, keystroke)
    assert len(watched.forwards) - forwards == answer.usage.forwards  # it had a place in every one of them
    finish(engine, *long)
    assert all(sum(tokens > SMALL_CHUNK for tokens in shared) <= 1 for shared in watched.forwards)


def test_two_long_prompts_progress_at_the_same_pace(engine: Engine, watched: WatchedModel) -> None:
    runs = [begin(engine, ask("b", cut=900, max_tokens=1)), begin(engine, ask("c", cut=900, max_tokens=1))]
    ended_after = []
    while not all(run.has_ended for run in runs):
        ended_after += [len(watched.forwards)] * len(engine.step())
    assert ended_after[0] >= len(watched.forwards) - 2


@pytest.mark.parametrize("user", ["", "many"])
def test_turns_pass_from_user_to_user(engine: Engine, watched: WatchedModel, user: str) -> None:
    """Who has several connections has one user's turns."""
    flood = [begin(engine, ask(name, cut=900), client=f"ws-{user and name}", user=user) for name in "ab"]
    engine.step()
    other = begin(engine, ask("c", cut=900, max_tokens=1), client="ws-c", user=user and "one")
    forwards = len(watched.forwards)
    (answer,) = finish(engine, other)
    assert len(watched.forwards) - forwards <= 2 * answer.usage.forwards
    finish(engine, *flood)


FLOODS: dict[str, Callable[[str], CompletionRequest]] = {
    "long prompts": partial(ask, cut=900),
    "several alternatives": partial(ask, max_tokens=200, alternatives=16),
    "long texts": partial(ask, max_tokens=200),
    "prefetches": partial(ask, cut=900, max_tokens=0),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_adds_little_to_a_keystroke_of_another(options: EngineOptions, kind: str) -> None:
    """By tokens; what is under way as the key comes is not counted, but small."""
    engine = load_engine(replace(options, slots=5))
    watched = WatchedModel(engine._model)
    engine._model = watched  # type: ignore[assignment]
    engine._clock = lambda: float(sum(map(sum, watched.forwards))) / 1000  # a token takes a millisecond
    finish(engine, begin(engine, ask("key"), client="other"))
    flood = list[Request]()
    for length in range(1, 9):
        while len(flood := [run for run in flood if not run.has_ended]) < 4:
            number = f"{kind} {len(watched.forwards)} {len(flood)}"
            flood.append(begin(engine, FLOODS[kind](number), client="flood"))
        engine.step()
        before = len(watched.forwards)
        assert sum(watched.forwards[-1]) <= SMALL_CHUNK + len(flood)
        (answer,) = finish(engine, begin(engine, ask("key", increment="x" * length), client="other"))
        forwards, usage = watched.forwards[before:], answer.usage
        assert len(forwards) == usage.forwards  # it had a place in each of them
        alone = usage.recomputed_tokens + usage.generated_tokens + usage.drafted_tokens
        assert sum(map(sum, forwards)) <= (1 + 1 / KEYS_SHARE) * alone + SMALL_CHUNK + len(forwards)


def test_chunks_are_shorter_while_another_client_types(options: EngineOptions) -> None:
    engine = load_engine(replace(options, prefill_chunk=4 * SMALL_CHUNK))
    watched = WatchedModel(engine._model)
    engine._model = watched  # type: ignore[assignment]
    engine._clock = lambda: float(sum(map(sum, watched.forwards))) / 1000  # a token takes a millisecond
    begin(engine, ask("alone", cut=900), client="flood")
    engine.step()
    assert max(watched.forwards[-1]) == 4 * SMALL_CHUNK
    finish(engine, begin(engine, ask("key"), client="typist"))
    begin(engine, ask("more", cut=900), client="flood")
    before = len(watched.forwards)
    for _ in range(6):
        engine.step()
    assert max(map(max, watched.forwards[before + 1 :])) == SMALL_CHUNK


def test_a_prefetch_has_its_turn_when_nobody_waits(engine: Engine, watched: WatchedModel) -> None:
    prefetch = begin(engine, ask("a", cut=900, max_tokens=0))
    engine.step()
    asked = begin(engine, ask("b"))
    needed = len(watched.forwards)
    (answer,) = finish(engine, asked)
    assert [len(shared) for shared in watched.forwards[needed:]] == [1] * answer.usage.forwards
    (done,) = finish(engine, prefetch)
    assert done.finish_reason == "length"
    assert engine.complete(ask("a", cut=900, increment="x")).usage.recomputed_tokens <= 2


def test_cancellation_is_seen_before_the_next_forward(engine: Engine, watched: WatchedModel) -> None:
    cancelled = begin(engine, ask("a", cut=900))
    other = begin(engine, ask("b"))
    engine.step()
    cancelled.cancelled = True
    forwards = len(watched.forwards)
    assert engine.drop_unwanted() == [cancelled]
    assert len(watched.forwards) == forwards
    assert cancelled.completion().finish_reason == "cancelled"
    assert finish(engine, other)[0].finish_reason != "cancelled"
    assert engine.complete(ask("a", cut=900)).usage.recomputed_tokens <= 900  # what it had is resident
    check_integrity(engine)


def test_a_failing_forward_is_told_to_all_who_shared_it_and_to_nobody_else(engine: Engine, watched: WatchedModel) -> None:
    expected = engine.complete(structs.replace(ask("a"), reuse=False)).text
    runs = [begin(engine, ask("a")), begin(engine, ask("b"))]
    engine.step()
    watched.failure = RuntimeError("out of memory")
    assert engine.step() == runs
    for run in runs:
        with pytest.raises(RuntimeError, match="out of memory"):
            run.completion()
    watched.failure = None
    assert engine.complete(ask("a")).text == expected


def test_without_batching_there_is_room_for_one(options: EngineOptions) -> None:
    engine = load_engine(replace(options, batching=False))
    assert engine.capacity == 1
    for session in "abc":
        engine.complete(ask(session))
    assert engine.complete(ask("a", increment="x")).usage.recomputed_tokens <= 2
    assert engine.stats().tokens == 0  # every session has a workspace, and nothing was copied


WORDS = ["def ", "main", "(", ")", ":\n", "    ", "return", " x", "\n", "'é'", "1"]


class Editors:
    """Some people at their documents, who share an engine, and a cold engine that knows what they have to see."""

    def __init__(self, engine: Engine, oracle: Callable[[CompletionRequest], str], seed: int) -> None:
        self.engine = engine
        self.oracle = oracle
        self.rng = random.Random(seed)
        self.texts = {"a": "", "b": "", "c": "", "d": ""}
        self.cuts = dict.fromkeys(self.texts, 300)
        self.running: dict[Request, int] = {}  # with the steps after which it is cancelled
        self.compared = self.cancelled = 0

    def begin(self) -> None:
        """Somebody types, deletes, or goes elsewhere, and asks; perhaps the answer is not wanted for long."""
        idle = [session for session in self.texts if session not in {run.spec.session for run in self.running}]
        session = self.rng.choice(idle)
        text = self.texts[session]
        keep = len(text) if self.rng.random() < 0.7 else self.rng.randint(0, len(text))
        self.texts[session] = (text[:keep] + "".join(self.rng.choices(WORDS, k=self.rng.randint(0, 4))))[:80]
        if self.rng.random() < 0.2:
            self.cuts[session] = self.rng.choice([100, 300, 700])
        request = ask(
            "same" if self.rng.random() < 0.3 else session,
            self.cuts[session],
            self.rng.choice([0, 1, 4, 12]),
            self.texts[session],
        )
        patience = self.rng.choice([1000, 1000, 1000, 0, 2, 5])
        run = begin(self.engine, structs.replace(request, session=session))
        if run.has_ended:
            self.check(run)
        else:
            self.running[run] = patience

    def step(self) -> None:
        for run in self.running:
            run.cancelled = self.running[run] <= 0
            self.running[run] -= 1
        for run in self.engine.step():
            del self.running[run]
            self.check(run)

    def check(self, run: Request) -> None:
        """The text of a request that has ended has to be the one that is computed alone, and cold."""
        check_integrity(self.engine)
        completion = run.completion()
        if completion.finish_reason == "cancelled":
            self.cancelled += 1
        else:
            self.compared += 1
            assert completion.text == self.oracle(run.spec)

    def work(self) -> None:
        """Begin requests and step at random, until all have ended."""
        for _ in range(30):
            if len(self.running) < self.engine.capacity and self.rng.random() < 0.5:
                self.begin()
            else:
                self.step()
        while self.running:
            self.step()


@pytest.fixture(scope="module")
def file(checkpoint: Path) -> Path:
    """The same in 4 bits, which needs no torch."""
    return write_gguf(checkpoint / "tiny.gguf", checkpoint, "Q4_0")


@pytest.mark.parametrize("changes", [{}, {"kernel": False}, {"healing": "on"}, {"weights": "Q4_0"}], ids=str)
def test_whoever_shares_the_engine_no_text_changes(options: EngineOptions, file: Path, changes: dict[str, object]) -> None:
    options = replace(options, model=str(file)) if "weights" in changes else replace(options, **changes)
    alone = load_engine(replace(options, batching=False, slots=1))
    engines = {
        (slots, budget): load_engine(replace(options, slots=slots, store_budget_bytes=budget))
        for slots in (1, 2, 4)
        for budget in (2**15, 2**24)
    }

    def cold(request: CompletionRequest) -> str:
        return alone.complete(structs.replace(request, reuse=False)).text

    @settings(max_examples=settings.default.max_examples // 6, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), engine=st.sampled_from(list(engines.values())))
    def check(seed: int, engine: Engine) -> None:
        Editors(engine, cold, seed).work()

    check()
    if not REQUESTS:
        return
    compared = cancelled = seed = 0
    while compared + cancelled < REQUESTS:
        engine = list(engines.values())[seed % len(engines)]
        editors, seed = Editors(engine, cold, seed), seed + 1
        editors.work()
        compared, cancelled = compared + editors.compared, cancelled + editors.cancelled
    evicted = sum(engine.stats().evicted_tokens for engine in engines.values())
    print(f"{compared} texts equal the cold ones, {cancelled} cancelled, {evicted} tokens evicted")  # noqa: T201

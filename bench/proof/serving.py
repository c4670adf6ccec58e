"""Sections 8 and 9: an engine that answers the requests of a recorded session, and what reuse changes in its texts."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import structs
from proof.card import Card
from proof.graphed import Eager, counting_eager, record_all
from proof.models import spelled_tokens, tiny_model, tiny_tokenizer
from proof.requests_file import read_requests
from proof.runner import Check, Finding, Row, Section, grouped
from proof.sizes import Sizes
from proof.speed import graphed_of

from inference.backends import cuda
from inference.backends.llama.graphs import GraphedDecoder
from inference.engine.engine import Engine, EngineConfig
from inference.engine.interface import DeviceHooks, EngineInfo
from inference.loading.engine import chars_per_token, load_engine
from inference.loading.memory_plan import MOST_PREFILL_CHUNK
from inference.loading.options import EngineOptions
from inference.loading.tiers import TierBudgets, open_store
from inference.text.tokenization import TextTokenizer
from protocol.messages import CompletionRequest
from protocol.settings import TINY_MODEL

STORE_BYTES = 2 * 2**30
DISK_BYTES = 8 * 2**30
SLOTS = 2
EXPECTED_MS = "30 to 90"
"""Of a keystroke at 1.5B: 1 to 4 tokens in, 10 to 25 out; by arithmetic from before the first run."""
LEAST_REPLAYED = 0.9
"""Share of the forwards; the others are chunks that are too long for a graph."""


def sections(card: Card, sizes: Sizes) -> list[Section]:
    """What an engine does on the card."""
    return [
        Section(8, "engine", 36, lambda: _session(card, sizes), lambda rows: _about_session(rows, sizes)),
        Section(9, "reuse", 12, lambda: _reuse(card, sizes), _about_reuse),
    ]


def random_engine(
    card: Card,
    sizes: Sizes,
    name: str,
    tokenizer: TextTokenizer,
    *,
    folder: Path | None = None,
    slots: int = SLOTS,
    store_bytes: int = STORE_BYTES,
    split_attention: bool = True,
) -> tuple[Engine, GraphedDecoder]:
    """An engine of the model of this name, as the core would have it, with random weights: no checkpoint is read."""
    model, weights = graphed_of(card, sizes, name, spelled_tokens(tokenizer), split_attention=split_attention)
    budgets = TierBudgets(store_bytes if card.is_real else 2**24, STORE_BYTES, folder, DISK_BYTES)
    store, prepare_store = open_store(budgets, model.kv_shape, model.device, f"random {name}")
    info = EngineInfo(name, str(card.device), model.context_tokens, chars_per_token(tokenizer), weights.nbytes)
    hooks = DeviceHooks(lambda: prepare_store() or model.prepare(), partial(cuda.is_lost, card.device), cuda.give_memory_back)
    chunk = sizes.prefill_chunk or EngineOptions(name).prefill_chunk
    most = 0 if sizes.prefill_chunk else MOST_PREFILL_CHUNK
    # As a plan on a GPU has it.
    config = EngineConfig(prefill_chunk=chunk, most_prefill_chunk=most, slots=slots, kept=slots)
    return Engine(info, model, tokenizer, store, config, device=hooks), model


def tiny_options(model: str, card: Card, sizes: Sizes, **more: object) -> EngineOptions:
    """The options of the real, trained model `tiny`, whatever it is called here, on the card."""
    given: dict[str, Any] = {"context_tokens": sizes.context, "slots": SLOTS, "store_budget_bytes": 2**26, **more}
    if sizes.prefill_chunk:
        given["prefill_chunk"] = sizes.prefill_chunk
    return EngineOptions(model, device=str(card.device), **given)


def recorded(sizes: Sizes) -> list[CompletionRequest]:
    """The requests of the recorded session, with answers of at most so many tokens."""
    most = sizes.max_tokens
    return [structs.replace(each, max_tokens=min(each.max_tokens, most)) for each in read_requests()]


@contextmanager
def tiny_engine(card: Card, sizes: Sizes, **more: object) -> Iterator[Engine]:
    """That model's engine, read from its checkpoint as the core reads it."""
    with tiny_model(sizes.tiny_layers) as name, closing(load_engine(tiny_options(name, card, sizes, **more))) as engine:
        yield engine


def play(engine: Engine, requests: Sequence[CompletionRequest], eager: Eager | None = None) -> Iterator[Row]:
    """A row for each request for a suggestion, which follows the prefetch before it as in the session."""
    for request in requests:
        before = eager.forwards if eager else 0
        started = time.perf_counter()
        completion = engine.complete(request)
        milliseconds = (time.perf_counter() - started) * 1e3
        usage = completion.usage
        row: Row = {
            "ms": milliseconds,
            "is_prefetch": not request.max_tokens,
            "prompt": usage.prompt_tokens,
            "recomputed": usage.recomputed_tokens,
            "generated": usage.generated_tokens,
            "forwards": usage.forwards,
        }
        yield row | ({"eager": eager.forwards - before} if eager else {})


def session_rows(
    card: Card, sizes: Sizes, name: str, tokenizer: TextTokenizer, requests: int, *, split_attention: bool = True
) -> Iterator[Row]:
    """The recorded session on a random model, after its graphs are recorded; the first prompt is cold."""
    engine, model = random_engine(card, sizes, name, tokenizer, split_attention=split_attention)
    with closing(engine), counting_eager(model) as eager:
        record_all(engine.device.prepare)
        for row in play(engine, recorded(sizes)[:requests], eager):
            yield {"model": name, **row}


def _session(card: Card, sizes: Sizes) -> Iterator[Row]:
    with tiny_engine(card, sizes) as engine:
        record_all(engine.device.prepare)
        for row in play(engine, recorded(sizes)[: sizes.requests]):
            yield {"model": TINY_MODEL, **row}
    card.free_bytes()
    tokenizer = tiny_tokenizer()
    yield from session_rows(card, sizes, sizes.served, tokenizer, sizes.served_requests)
    card.free_bytes()
    yield from _first_tokens(card, sizes, tokenizer)


def _first_tokens(card: Card, sizes: Sizes, tokenizer: TextTokenizer) -> Iterator[Row]:
    """The first token of the longest recorded prompt: cold, warm, and when the engine has been started again."""
    longest = max(recorded(sizes), key=lambda request: len(request.prompt.prefix) + len(request.prompt.suffix))
    prompt = structs.replace(longest, max_tokens=1)
    with tempfile.TemporaryDirectory() as folder:
        for when in ("cold", "warm", "restarted"):
            if when != "warm":
                engine, model = random_engine(card, sizes, sizes.served, tokenizer, folder=Path(folder))
                record_all(engine.device.prepare)
            asked = structs.replace(prompt, reuse=False) if when == "cold" else prompt
            if when == "cold":
                engine.complete(structs.replace(asked, session="warm-up"))
            (row,) = play(engine, [asked])
            yield {"model": sizes.served, "first": when, **row}
            if when == "cold":
                engine.complete(prompt)
            else:
                engine.close()
        del engine, model


def _about_session(rows: Sequence[Row], sizes: Sizes) -> Iterator[Finding]:
    for model, own in grouped(rows, "model"):
        played = [row for row in own if "first" not in row]
        keys = [row for row in played if not row["is_prefetch"]][1:]  # the first one's prompt is cold
        if not keys:
            continue
        recomputed, prompt = (sum(row[what] for row in played[1:]) for what in ("recomputed", "prompt"))
        yield Check(f"{model}: prompts are reused", recomputed <= sizes.most_recomputed * prompt, f"{recomputed} of {prompt}")
        yield Check(f"{model}: text is generated", sum(row["generated"] for row in keys) > 0)
        forwards = sum(row["forwards"] for row in keys)
        if "eager" in keys[0]:
            replayed = 1 - sum(row["eager"] for row in keys) / forwards
            yield Check(f"{model}: forwards are replayed", replayed >= LEAST_REPLAYED, f"{replayed:.1%} of {forwards}")
        times = sorted(row["ms"] for row in keys)
        at = {rank: times[min(len(times) - 1, len(times) * rank // 100)] for rank in (50, 95, 99)}
        median = statistics.median(row["recomputed"] for row in keys)
        yield (
            f"{model:<5}{len(keys)} keys: {', '.join(f'p{rank} {ms:.1f}' for rank, ms in at.items())} ms"
            f"{f' (expected {EXPECTED_MS})' if model == '1.5B' else ''}; recomputed {median:.0f} (median), "
            f"{forwards / len(keys):.1f} forwards a key"
        )
    first = {row["first"]: row for row in rows if "first" in row}
    if "restarted" in first:
        found = first["restarted"]["recomputed"]
        yield Check("after a restart the prompt is found on disk", found == first["warm"]["recomputed"], f"{found} tokens")
    if first:
        times_ = ", ".join(f"{when} {row['ms']:.1f} ms ({row['recomputed']} computed)" for when, row in first.items())
        yield f"first token of {next(iter(first.values()))['prompt']}: {times_}"


def _reuse(card: Card, sizes: Sizes) -> Iterator[Row]:
    """Each compared request is answered warm, then cold; those between keep the session going."""
    for way in ("float32", "bfloat16"):
        count = sizes.reused
        with tiny_engine(card, sizes, dtype=way) as engine:
            record_all(engine.device.prepare)
            asked = [request for request in recorded(sizes) if request.max_tokens]
            for request in islice(asked, 0, None, sizes.reuse_step):
                warm = engine.complete(request)
                cold = engine.complete(structs.replace(request, session="cold", reuse=False))
                distance = abs((warm.mean_logprob or 0.0) - (cold.mean_logprob or 0.0))
                yield {
                    "way": way,
                    "equal": (warm.text, warm.finish_reason) == (cold.text, cold.finish_reason),
                    "distance": distance,
                    "reused": warm.usage.prompt_tokens - warm.usage.recomputed_tokens,
                    "recomputed": warm.usage.recomputed_tokens,
                }
                count -= 1
                if not count:
                    break
        card.free_bytes()


def _about_reuse(rows: Sequence[Row]) -> Iterator[Finding]:
    for way, own in grouped(rows, "way"):
        equal = sum(row["equal"] for row in own)
        distance = max((row["distance"] for row in own if row["equal"]), default=0.0)
        found = f"{equal} of {len(own)} texts equal, log-probability differs by {distance:.1e} at most"
        if way == "float32":
            yield Check("float32: every text is the cold one", equal == len(own), found)
        yield f"{way:<9}{found}; {sum(row['reused'] for row in own)} tokens reused"

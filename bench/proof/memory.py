"""Sections 10 and 11: pages that leave for main memory and come back, and a card without memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import psutil
from msgspec import structs
from proof.card import Card
from proof.graphed import record_all
from proof.models import tiny_tokenizer
from proof.runner import Check, Finding, Row, Section
from proof.serving import random_engine, recorded
from proof.sizes import Sizes

from inference.core.engine_holder import EngineHolder
from inference.engine.engine import Engine
from inference.engine.sessions import session_key as key
from inference.loading.tiers import TierBudgets, open_store
from kv_store.main_memory import KVShape
from kv_store.page_tree import PAGE_TOKENS
from kv_store.workspace import KVWorkspace
from protocol.messages import CompletionRequest, CoreStatus
from tests.kv_store.integrity import check_integrity

PAGES_ON_DEVICE = 4
RETURNED_PAGES = 128
MOST_OF_ACCOUNTED = 1.25
"""Resident memory may grow by so many times what the store accounts for."""
RSS_SLACK = 64 * 2**20
SLOTS = 8
SESSIONS = 8
STORE_BYTES = 16 * 2**20
"""Of the store on the card, as little as a memory plan leaves it."""
RETURNED_SLACK = 64 * 2**20
"""Bytes that libraries keep once they have been used."""


def sections(card: Card, sizes: Sizes) -> list[Section]:
    """What happens where memory ends."""
    return [
        Section(10, "tiers", 4, lambda: _tiers(card, sizes), lambda rows: _about_tiers(rows, card)),
        Section(11, "out of memory", 10, lambda: _without_memory(card, sizes), _about_memory),
    ]


def _tiers(card: Card, sizes: Sizes) -> Iterator[Row]:
    """Twice: the first pages of a process have their main memory still to be allocated."""
    model = sizes.models[sizes.served]
    shape = KVShape(model.layers, model.kv_heads, model.head_dim, "bfloat16")
    tokens = sizes.pages * PAGE_TOKENS
    source, goal = (KVWorkspace(shape, tokens, card.device) for _ in range(2))
    page = PAGE_TOKENS * shape.bytes_per_token
    budgets = TierBudgets(PAGES_ON_DEVICE * page, 4 * sizes.pages * page, None, 0)
    store, prepare = open_store(budgets, shape, card.device, "")
    for turn in range(2):
        source.buffer.normal_()
        ids = [turn + 1, *range(tokens - 1)]
        before, accounted = psutil.Process().memory_info().rss, store.stats().used_bytes
        started = time.perf_counter()
        store.insert_prefix(ids, source, key(f"session {turn}"))
        prepare()  # pages that wait for others leave at rest
        queued = time.perf_counter()
        card.wait()
        ended = time.perf_counter()
        grown = psutil.Process().memory_info().rss - before
        count = min(tokens, RETURNED_PAGES * PAGE_TOKENS)
        goal.buffer.zero_()
        card.wait()
        begun = time.perf_counter()
        with store.match_prefix(ids[:count]) as match:
            loaded = match.load(goal)
        card.wait()
        yield {
            "turn": turn,
            "pages": sizes.pages,
            "bytes": sizes.pages * page,
            "queue_ms": (queued - started) * 1e3,
            "ms": (ended - started) * 1e3,
            "rss_bytes": grown,
            "accounted_bytes": store.stats().used_bytes - accounted,
            "in_main_memory": next(tier.pages for tier in store.stats().tiers if tier.name == "host"),
            "returned": loaded,
            "return_ms": (time.perf_counter() - begun) * 1e3,
            "prepared": record_all(prepare),
            "equal": loaded == count and bool((source.buffer[:, :, :, :count] == goal.buffer[:, :, :, :count]).all()),
        }
    check_integrity(store)
    store.close()


def _about_tiers(rows: Sequence[Row], card: Card) -> Iterator[Finding]:
    for row in rows:
        yield Check("what returns is equal, bit by bit", row["equal"], f"{row['returned']} tokens")
        yield Check("pages left the card", row["in_main_memory"] > 0, f"{row['in_main_memory']}")
        if card.is_real:
            most = MOST_OF_ACCOUNTED * row["accounted_bytes"] + RSS_SLACK
            found = f"{row['rss_bytes'] / 2**20:.0f} MiB for {row['accounted_bytes'] / 2**20:.0f}"
            yield Check("main memory is as accounted", row["rss_bytes"] <= most, found)
        yield (
            f"{'again' if row['turn'] else 'first'}: {row['pages']} pages, {row['bytes'] / 2**20:.0f} MiB, "
            f"in {row['ms']:.0f} ms (queued in {row['queue_ms']:.0f}); RSS +{row['rss_bytes'] / 2**20:.0f} MiB; "
            f"{row['returned']} tokens back in {row['return_ms']:.0f} ms"
        )


def _without_memory(card: Card, sizes: Sizes) -> Iterator[Row]:
    tokenizer = tiny_tokenizer()
    statuses: list[CoreStatus] = []

    def load(_: object) -> Engine:
        return random_engine(card, sizes, sizes.small, tokenizer, slots=SLOTS, store_bytes=STORE_BYTES)[0]

    holder = EngineHolder(sizes.small, load, statuses.append)
    requests = [request for request in recorded(sizes) if request.max_tokens]
    holder.engine().complete(requests[0])  # whatever libraries keep, they have now
    holder.unload()
    baseline = card.free_bytes()
    engine = holder.engine()
    assert isinstance(engine, Engine)
    engine.complete(requests[0])
    workspace = engine.stats().workspaces_bytes // engine.stats().workspaces
    left = int(sizes.ballast_leaves * workspace) + sizes.room_bytes
    ballast = card.take_all_but(left, sizes.least_bytes)
    before = engine.capacity
    yield {
        "workspace_bytes": workspace,
        "ballast_bytes": [each.nbytes for each in ballast],
        "available_bytes": card.available_bytes(),
        "baseline_bytes": baseline,
    }
    yield {"asked": SESSIONS, "answered": _ask(engine, requests), "capacity": engine.capacity, "of": before}
    yield {"recordings": record_all(engine.device.prepare), "again": engine.device.prepare()}
    yield {"asked": SESSIONS, "answered": _ask(engine, requests), "capacity": engine.capacity, "of": before}
    del ballast, engine
    holder.unload()
    yield {"baseline_bytes": baseline, "free_bytes": card.free_bytes(), "state": statuses[-1].state}


def _ask(engine: Engine, requests: Sequence[CompletionRequest]) -> int:
    """How many of the requests of different sessions are answered; the others' errors are raised."""
    answered = 0
    for number in range(SESSIONS):
        request = structs.replace(requests[number % len(requests)], session=f"session {number}")
        answered += engine.complete(request).finish_reason != "cancelled"
    return answered


def _about_memory(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        if "answered" in row:
            yield Check("every request is answered", row["answered"] == row["asked"], f"{row['answered']}")
            yield Check("slots drop", row["capacity"] < row["of"], f"{row['capacity']} of {row['of']}")
            yield f"{row['answered']} of {row['asked']} sessions answered, {row['capacity']} of {row['of']} slots"
        elif "recordings" in row:
            yield Check("recording stops", not row["again"], f"after {row['recordings']}")
            yield f"recording stopped after {row['recordings']}"
        elif "free_bytes" in row:
            missing = row["baseline_bytes"] - row["free_bytes"]
            yield Check("unloading returns the memory", missing <= RETURNED_SLACK, f"{missing} bytes missing")
            yield Check("the core reports it", row["state"] == "unloaded", row["state"])

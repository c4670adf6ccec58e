"""Section 13: the served model with what is off by default: cuDNN's attention, and attention that splits over keys."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from proof.card import Card
from proof.graphed import is_replayed, record_for
from proof.models import tiny_tokenizer
from proof.runner import Finding, Row, Section, grouped
from proof.serving import session_rows
from proof.sizes import Sizes
from proof.speed import graphed_of

from inference.backends.llama.decoder import Decoder
from inference.backends.model import Chunk
from kv_store.interface import Workspace

TOKENS = 8
PREFILL_CHUNK = 256
KEYS = 60
DEFAULT, WITH_CUDNN, SPLIT = "default", "cuDNN allowed", "split attention"


def section(card: Card, sizes: Sizes) -> Section:
    """Each beside the default."""
    return Section(13, "variants", 20, lambda: _measure(card, sizes), _conclude)


def _measure(card: Card, sizes: Sizes) -> Iterator[Row]:
    for variant in (DEFAULT, WITH_CUDNN, SPLIT):
        if variant == SPLIT and not card.is_real:
            yield {"variant": variant, "missing": "a simulated device does not run Triton"}
            continue
        with _cudnn(allowed=variant == WITH_CUDNN):
            for row in _of_variant(card, sizes, split_attention=variant == SPLIT):
                yield {"variant": variant, **row}
        card.free_bytes()


@contextmanager
def _cudnn(*, allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def _of_variant(card: Card, sizes: Sizes, *, split_attention: bool) -> Iterator[Row]:
    graphed, _ = graphed_of(card, sizes, sizes.served, split_attention=split_attention)
    if split_attention and not graphed.splits_attention:
        yield {"missing": "Triton is not installed, or does not compute these heads"}
        return
    workspace = graphed.new_workspace()
    for visible in sizes.visible:
        chunks = [Chunk([7], visible - 1, workspace, wanted=1)]
        record_for(graphed, *chunks)
        seconds = card.median_s(partial(graphed.forward, chunks))
        row = {"visible": visible, "graph_ms": seconds * 1e3, "replayed": is_replayed(graphed, *chunks)}
        yield {**row, "splits": graphed.splits_attention}
    if not split_attention:  # it changes graphs alone
        yield _eager(card, sizes, graphed.plain, workspace)
    del graphed, workspace, chunks
    card.free_bytes()
    requests = min(KEYS, sizes.requests)
    yield from session_rows(card, sizes, sizes.served, tiny_tokenizer(), requests, split_attention=split_attention)


def _eager(card: Card, sizes: Sizes, plain: Decoder, workspace: Workspace) -> Row:
    """Tokens one after another without graphs, each of which sees one more, and a prompt in chunks."""
    visible, prompt = sizes.visible[0], sizes.prefill[-1]
    plain.forward([Chunk([7], 0, workspace, wanted=1)])
    tokens = [
        card.times_s(partial(plain.forward, [Chunk([7], visible + number, workspace, wanted=1)]), 1)[0]
        for number in range(TOKENS)
    ]

    def prefill() -> None:
        for start in range(0, prompt, PREFILL_CHUNK):
            plain.forward([Chunk([7] * min(PREFILL_CHUNK, prompt - start), start, workspace)])

    first, second = card.times_s(prefill, 2)
    return {"token_ms": statistics.median(tokens) * 1e3, "prefill_ms": [first * 1e3, second * 1e3], "prompt": prompt}


def _conclude(rows: Sequence[Row]) -> Iterator[Finding]:
    for variant, own in grouped(rows, "variant"):
        parts = [row["missing"] for row in own if "missing" in row]
        graphs = [row for row in own if "graph_ms" in row]
        if graphs:
            parts.append("graph " + ", ".join(f"{row['visible']}: {row['graph_ms']:.2f}" for row in graphs) + " ms")
        if any(not row["splits"] for row in graphs if variant == SPLIT):
            parts.append("IT COULD NOT BE RECORDED")
        for row in own:
            if "token_ms" in row:
                first, second = row["prefill_ms"]
                parts.append(f"eager {row['token_ms']:.2f} ms, prompt of {row['prompt']} {first:.0f}, again {second:.0f} ms")
        keys = sorted(row["ms"] for row in own if "ms" in row and not row["is_prefetch"])
        if keys:
            parts.append(f"{len(keys)} keys, median {statistics.median(keys):.1f} ms")
        yield f"{variant:<16}{'; '.join(parts)}"

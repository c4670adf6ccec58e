"""Section 13: the served model as users get it, without Triton's kernels, with cuDNN's attention, and in 4 bits.

Also how fast a card dequantizes the blocks of GGUF files.
"""

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
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.int4 import int4_weights
from inference.backends.llama.weights import VALUES_AT_ONCE
from inference.backends.model import Chunk
from inference.checkpoints.gguf.blocks import dequantized
from kv_store.interface import Workspace

TOKENS = 8
PREFILL_CHUNK = 256
KEYS = 30
DEFAULT, MASKED, WITH_CUDNN, INT4 = "default", "without Triton", "cuDNN allowed", "int4"
SEQUENCES = (2, 4)
"""Each with a new token, whose replay in one graph is measured beside that in turn."""
BLOCK = {"Q4_K": (144, 256), "Q6_K": (210, 256)}  # bytes and values


def section(card: Card, sizes: Sizes) -> Section:
    """Each beside the default."""
    return Section(13, "variants", 40, lambda: _measure(card, sizes), _conclude)


def _measure(card: Card, sizes: Sizes) -> Iterator[Row]:
    for variant in (DEFAULT, MASKED, WITH_CUDNN, INT4):
        with _cudnn(allowed=variant == WITH_CUDNN):
            for row in _of_variant(card, sizes, variant):
                yield {"variant": variant, **row}
        card.free_bytes()
    for kind, (size, values) in BLOCK.items():
        rows, blocks = VALUES_AT_ONCE // values // sizes.product, sizes.product
        stored = torch.zeros(max(1, rows), blocks * size, dtype=torch.uint8, device=card.device)
        seconds = card.median_s(partial(dequantized, stored, kind))
        yield {"variant": "GGUF blocks", "kind": kind, "values_per_s": max(1, rows) * blocks * values / seconds}


@contextmanager
def _cudnn(*, allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def _of_variant(card: Card, sizes: Sizes, variant: str) -> Iterator[Row]:
    split = variant in (DEFAULT, INT4)
    graphed, weights = graphed_of(card, sizes, sizes.served, split_attention=split)
    if variant == INT4:
        packed = int4_weights(weights, card.device, tied=weights.head is weights.embedding)
        graphed = GraphedDecoder(Decoder(sizes.models[sizes.served], {}, packed, sizes.context))
        del weights, packed
        yield {"bytes": graphed.weights_bytes}
    workspace = graphed.new_workspace()
    for visible in sizes.visible:
        chunks = [Chunk([7], visible - 1, workspace, wanted=1)]
        record_for(graphed, *chunks)
        seconds = card.median_s(partial(graphed.forward, chunks))
        row = {"visible": visible, "graph_ms": seconds * 1e3, "replayed": is_replayed(graphed, *chunks)}
        yield {**row, "splits": graphed.splits_attention}
    if variant == DEFAULT and graphed.splits_attention:
        for count in SEQUENCES:
            chunks = [Chunk([7], sizes.visible[0] - 1, graphed.new_workspace(), wanted=1) for _ in range(count)]
            in_turn = card.median_s(partial(graphed.forward, chunks))
            while graphed.prepare():
                pass
            yield {
                "sequences": count,
                "in_turn_ms": in_turn * 1e3,
                "together_ms": card.median_s(partial(graphed.forward, chunks)) * 1e3,
            }
    if variant in (DEFAULT, WITH_CUDNN):
        yield _eager(card, sizes, graphed.plain, workspace)
    del graphed, workspace, chunks
    card.free_bytes()
    if variant != INT4:
        requests = min(KEYS, sizes.requests)
        yield from session_rows(card, sizes, sizes.served, tiny_tokenizer(), requests, split_attention=split)


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
        parts = list[str]()
        graphs = [row for row in own if "graph_ms" in row]
        if graphs:
            parts.append("graph " + ", ".join(f"{row['visible']}: {row['graph_ms']:.2f}" for row in graphs) + " ms")
        if any(not row["splits"] for row in graphs if variant == DEFAULT):
            parts.append("WITHOUT TRITON")
        parts += [f"{row['kind']} {row['values_per_s'] / 1e9:.1f}G values/s" for row in own if "kind" in row]
        parts += [f"weights {row['bytes'] / 2**20:.0f} MiB" for row in own if "bytes" in row]
        for row in own:
            if "sequences" in row:
                parts.append(f"{row['sequences']} sequences {row['together_ms']:.2f} ms, in turn {row['in_turn_ms']:.2f}")
            if "token_ms" in row:
                first, second = row["prefill_ms"]
                parts.append(f"eager {row['token_ms']:.2f} ms, prompt of {row['prompt']} {first:.0f}, again {second:.0f} ms")
        keys = sorted(row["ms"] for row in own if "ms" in row and not row["is_prefetch"])
        if keys:
            parts.append(f"{len(keys)} keys, median {statistics.median(keys):.1f} ms")
        yield f"{variant:<16}{'; '.join(parts)}"

"""Section 13: the served model with what is off by default: cuDNN's attention, and attention that splits over keys."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import torch
from proof.card import Card
from proof.models import tiny_tokenizer
from proof.runner import Finding, Row, Section
from proof.serving import session_rows
from proof.sizes import Sizes
from proof.speed import graphed_of

from inference.backends.chunk import Chunk
from inference.backends.llama.graphs import GraphedDecoder
from kv_store.interface import Workspace

TOKENS = 8
PREFILL_CHUNK = 256
KEYS = 60


def section(card: Card, sizes: Sizes) -> Section:
    """Both, beside the default."""
    return Section(13, "variants", 20, lambda: _measure(card, sizes), _conclude)


def _measure(card: Card, sizes: Sizes) -> Iterator[Row]:
    for variant, allowed in (("default", False), ("cuDNN allowed", True)):
        before = torch.backends.cuda.cudnn_sdp_enabled()
        torch.backends.cuda.enable_cudnn_sdp(allowed)
        try:
            graphed, _ = graphed_of(card, sizes, sizes.served)
            yield {"variant": variant, **_eager(card, sizes, graphed, graphed.new_workspace())}
            del graphed
            card.free_bytes()
            requests = min(KEYS, sizes.requests)
            for row in session_rows(card, sizes, sizes.served, tiny_tokenizer(), requests):
                yield {"variant": variant, **row}
            card.free_bytes()
        finally:
            torch.backends.cuda.enable_cudnn_sdp(before)


def _eager(card: Card, sizes: Sizes, graphed: GraphedDecoder, workspace: Workspace) -> Row:
    """Tokens one after another without graphs, each of which sees one more, and a prompt in chunks."""
    visible, prompt = sizes.visible[0], sizes.prefill[-1]
    plain = graphed.plain
    plain.forward([Chunk([7], 0, workspace, wanted=1)])
    tokens = [
        card.times_s(lambda stop=visible + number: plain.forward([Chunk([7], stop, workspace, wanted=1)]), 1)[0]  # type: ignore[misc]
        for number in range(TOKENS)
    ]

    def prefill() -> None:
        for start in range(0, prompt, PREFILL_CHUNK):
            plain.forward([Chunk([7] * min(PREFILL_CHUNK, prompt - start), start, workspace)])

    first, second = card.times_s(prefill, 2)
    return {"token_ms": statistics.median(tokens) * 1e3, "prefill_ms": [first * 1e3, second * 1e3], "prompt": prompt}


def _conclude(rows: Sequence[Row]) -> Iterator[Finding]:
    for variant in dict.fromkeys(row["variant"] for row in rows):
        own = [row for row in rows if row["variant"] == variant]
        keys = sorted(row["ms"] for row in own if "ms" in row and not row["ahead"])[1:]
        played = f"; {len(keys)} keys, median {statistics.median(keys):.1f} ms" if keys else ""
        for row in own:
            if "token_ms" in row:
                first, second = row["prefill_ms"]
                yield (
                    f"{variant:<14}eager token {row['token_ms']:.2f} ms, prefill of {row['prompt']} {first:.0f} ms, "
                    f"again {second:.0f}{played}"
                )

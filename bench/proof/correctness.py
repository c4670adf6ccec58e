"""Sections 3 and 14: forwards on the card against the same decoder in float64 on the CPU.

The reference has the same weights and the same resident KV, rounded as on the card. Compared are the log-probabilities
of all tokens after the last one, and the KV that the forward writes, which depends on the attention of every token.
What lies behind the new tokens in the workspace is large, so that a wrong mask cannot pass.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from proof.card import Card
from proof.graphed import record_for
from proof.models import moved, random_weights
from proof.runner import Check, Finding, Row, Section
from proof.sizes import Sizes
from torch import Tensor

from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import FIRST_BUCKETS, TOKEN_BUCKETS, GraphedDecoder
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Chunk, Model
from kv_store.workspace import KVWorkspace

CPU = torch.device("cpu")
MOST_ERROR = {"float32": 1e-5, "bfloat16": 1e-2}
MOST_KV_ERROR = {"float32": 1e-5, "bfloat16": 2e-2}
"""KV is rounded once more than what it is computed from."""
POISON = 1e3
MOST_SCORES = 80_000
"""Of a case: new tokens times visible ones, per head: the reference takes long."""
DTYPES = (torch.float32, torch.bfloat16)
SPLIT_TOKENS = (*FIRST_BUCKETS, TOKEN_BUCKETS[-1])
"""That split attention is compared at: they use all that Triton compiles for a model and dtype, which takes seconds."""


class _Case:
    """A model of one geometry and dtype on the card in its ways to compute, and the reference."""

    def __init__(self, card: Card, sizes: Sizes, geometry: str, dtype: torch.dtype, *, split: bool = False) -> None:
        """With `split`, the only way is that of graphs with attention that splits over keys."""
        architecture = sizes.geometries[geometry]
        context = max(sizes.resident) + max(sizes.lengths)
        weights: DecoderWeights = moved(random_weights(architecture, torch.float32, CPU), CPU, dtype)
        there = moved(weights, card.device, dtype)
        decoder = Decoder(architecture, {}, there, context)
        graphed = GraphedDecoder(decoder, split_attention=split)
        workspace = graphed.new_workspace()
        self.ways: dict[str, tuple[Model, KVWorkspace]] = {"split": (graphed, workspace)}
        if not split:
            self.ways = {"eager": (decoder, workspace), "graph": (graphed, workspace)}
        self.reference = Decoder(architecture, {}, moved(weights, CPU, torch.float64), context)
        self.vocabulary = architecture.vocabulary
        self.expected = self.reference.new_workspace()
        resident = torch.randn(self.expected.buffer.shape).to(dtype)
        self.resident = {"card": resident.to(card.device), "reference": resident.double()}
        self.expected.buffer.copy_(self.resident["reference"])

    def expect(self, token_ids: list[int], start: int) -> tuple[Tensor, Tensor]:
        """What `run` should return; the reference sees nothing behind the tokens."""
        found = self._forward(self.reference, self.expected, token_ids, start)
        written = slice(start, start + len(token_ids))
        self.expected.buffer[:, :, :, written] = self.resident["reference"][:, :, :, written]
        return found

    def run(self, way: str, token_ids: list[int], start: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities [vocabulary] and the new KV, in float64, of tokens behind `start` resident ones."""
        model, workspace = self.ways[way]
        if isinstance(model, GraphedDecoder):
            record_for(model, Chunk(token_ids, start, workspace, wanted=1))
        workspace.buffer.copy_(self.resident["card"])
        workspace.buffer[:, :, :, start:] = POISON
        return self._forward(model, workspace, token_ids, start)

    def _forward(self, model: Model, workspace: KVWorkspace, token_ids: list[int], start: int) -> tuple[Tensor, Tensor]:
        chunk = Chunk(token_ids, start, workspace, wanted=1, top=self.vocabulary)
        ((choice,),) = model.forward([chunk])
        by_id = sorted(choice.top)
        kv = workspace.buffer[:, :, :, start : start + len(token_ids)].to(CPU, torch.float64, copy=True)
        return torch.tensor([logprob for _, logprob in by_id], dtype=torch.float64), kv


def section(card: Card, sizes: Sizes) -> Section:
    """Every way to compute, of both dtypes, at the lengths where kernels change."""
    return Section(3, "correctness", 26, lambda: _measure(card, sizes), _conclude)


def split_section(card: Card, sizes: Sizes) -> Section:
    """The kernels of Triton, which take seconds to compile."""
    return Section(14, "split attention", 35, lambda: _measure_split(card, sizes), _conclude)


def _measure(card: Card, sizes: Sizes) -> Iterator[Row]:
    """The cases in a random order, as many as there is time for: some of every kind."""
    order, started = random.Random(0), time.monotonic()
    cases = {key: _Case(card, sizes, *key) for key in product(sizes.geometries, DTYPES)}
    pending = list(product(cases, _shapes(sizes)))
    order.shuffle(pending)
    for number, (key, shape) in enumerate(pending):
        if time.monotonic() - started > sizes.compared_s:
            break
        for row in _compared(cases[key], order, *shape):
            yield {"geometry": key[0], "dtype": _name(key[1]), "place": [number + 1, len(pending)], **row}


def _measure_split(card: Card, sizes: Sizes) -> Iterator[Row]:
    """One model after another, each at all lengths, as many as can be compiled in the time."""
    card.check_triton()
    order, started = random.Random(0), time.monotonic()
    geometries = list(sizes.geometries)
    order.shuffle(geometries)
    done, count = 0, len(geometries) * len(DTYPES) * len(SPLIT_TOKENS) * len(sizes.resident)
    building = 0.0  # seconds of a model's first graphs, most of which Triton compiles
    for geometry, dtype in product(geometries, reversed(DTYPES)):
        began = time.monotonic()
        if began - started + building > sizes.split_s:
            return
        case = _Case(card, sizes, geometry, dtype, split=True)
        building = time.monotonic() - began
        for tokens in SPLIT_TOKENS:
            compiling = 0.0 if tokens in FIRST_BUCKETS else building / len(FIRST_BUCKETS)
            if time.monotonic() - started + compiling > sizes.split_s:
                break
            for start in sizes.resident:
                done += 1
                for row in _compared(case, order, tokens, start):
                    yield {"geometry": geometry, "dtype": _name(dtype), "place": [done, count], **row}


def _shapes(sizes: Sizes) -> list[tuple[int, int]]:
    """New tokens, and tokens before them."""
    every = product(sizes.lengths, sizes.resident)
    return [(count, start) for count, start in every if count * (start + count) <= MOST_SCORES]


def _compared(case: _Case, order: random.Random, count: int, start: int) -> Iterator[Row]:
    """A row for each way that computes so many tokens behind so many resident ones."""
    token_ids = [order.randrange(case.vocabulary) for _ in range(count)]
    expected, expected_kv = case.expect(token_ids, start)
    for way, (model, _) in case.ways.items():
        if isinstance(model, GraphedDecoder) and count > TOKEN_BUCKETS[-1]:
            continue
        found, kv = case.run(way, token_ids, start)
        yield {
            "way": way,
            "tokens": count,
            "resident": start,
            "split": isinstance(model, GraphedDecoder) and model.splits_attention,
            "error": distance(found, expected),
            "kv_error": distance(kv, expected_kv),
        }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def distance(found: Tensor, expected: Tensor) -> float:
    """The length of the difference relative to that of what is expected; infinite if there is any NaN."""
    error = float((found - expected).norm() / expected.norm())
    return error if error == error else float("inf")


def _conclude(rows: Sequence[Row]) -> Iterator[Finding]:
    worst: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        worst[row["dtype"], row["way"]].append(row)
        passed = (
            row["split"] is (row["way"] == "split")
            and row["error"] < MOST_ERROR[row["dtype"]]
            and row["kv_error"] < MOST_KV_ERROR[row["dtype"]]
        )
        yield Check(
            f"{row['dtype']} {row['way']} {row['geometry']}: {row['tokens']} tokens behind {row['resident']}",
            passed,
            f"error {row['error']:.1e}, of KV {row['kv_error']:.1e}",
        )
    if rows:
        number, count = rows[-1]["place"]
        yield f"{number} of {count} cases, {len({row['geometry'] for row in rows})} geometries"
    for (dtype, way), of_way in sorted(worst.items()):
        most = max(of_way, key=lambda row: row["error"])
        kv = max(row["kv_error"] for row in of_way)
        yield (
            f"{dtype:<9}{way:<6}{len(of_way):>5} cases, largest error {most['error']:.1e} "
            f"({most['geometry']}, {most['tokens']} behind {most['resident']}), of KV {kv:.1e}"
        )

"""Sections 5 to 7: milliseconds of decoding and of prefill, what recording graphs costs, and several sequences at once.

The expected milliseconds are arithmetic from before the first run: the bytes of all weights at 3.0 TB/s, 2 us for each
small kernel of a graph, and what attention takes that does not split over keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import torch
from proof.card import Card
from proof.graphed import counting_eager, is_replayed, record_all, record_for
from proof.models import bytes_read, products, random_weights
from proof.runner import Check, Finding, Row, Section, grouped
from proof.sizes import Sizes
from torch import Tensor

from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Chunk, Model
from inference.loading.memory_plan import MemoryDemand, plan_memory

EXPECTED_MS = {  # one token from a graph, behind 512 and behind 4,096 visible ones
    "135M": {512: 1.9, 4096: 3.9},
    "0.5B": {512: 1.8, 4096: 3.3},
    "1.5B": {512: 2.7, 4096: 4.4},
    "7B": {512: 6.9, 4096: 8.6},
}
TOLERANCE = 1.15
"""The chosen way may take so many times as long as the faster one: times of single runs vary."""
PREFILLS = 5
"""Rounds of prompts, which take longer than tokens."""
PLAN_SLACK = 32 * 2**20
"""Bytes that allocators round up to, whatever is recorded."""


def sections(card: Card, sizes: Sizes) -> list[Section]:
    """What the decoder does without an engine."""
    return [
        Section(5, "decode", 30, lambda: _decode(card, sizes), _about_decode),
        Section(6, "graphs", 5, lambda: _recording(card, sizes), _about_recording),
        Section(7, "sequences", 8, lambda: _sequences(card, sizes), partial(_about_sequences, is_timed=card.is_real)),
    ]


def graphed_of(
    card: Card, sizes: Sizes, name: str, spelled: Tensor | None = None, *, split_attention: bool = True
) -> tuple[GraphedDecoder, DecoderWeights]:
    """The model of this name with random bfloat16 weights, on the card."""
    weights = random_weights(sizes.models[name], torch.bfloat16, card.device, spelled)
    decoder = Decoder(sizes.models[name], {}, weights, sizes.context)
    return GraphedDecoder(decoder, split_attention=split_attention), weights


def _decode(card: Card, sizes: Sizes) -> Iterator[Row]:
    for name in sizes.models:
        for row in _decode_model(card, sizes, name):
            yield {"model": name, **row}
        card.free_bytes()


def _decode_model(card: Card, sizes: Sizes, name: str) -> Iterator[Row]:
    """Rows of each number of new and of visible tokens, from a graph and eager; of kernels; and of prompts."""
    bandwidth, rate = card.ceilings(sizes.copied_bytes, sizes.product)
    graphed, weights = graphed_of(card, sizes, name)
    workspace = graphed.new_workspace()
    ways: dict[str, Model] = {"graph": graphed, "eager": graphed.plain}
    for visible, new in product(sizes.visible, sizes.new):
        chunks = [Chunk([7] * new, visible - new, workspace, wanted=new)]
        record_for(graphed, *chunks)
        size = bytes_read(weights, graphed.kv_shape.bytes_per_token, visible)
        for way, model in ways.items():
            seconds = card.median_s(partial(model.forward, chunks))
            row: Row = {"way": way, "visible": visible, "new": new, "bytes": size, "floor_ms": size / bandwidth * 1e3}
            replayed = is_replayed(graphed, *chunks) if model is graphed else None
            yield {**row, "ms": seconds * 1e3, "share": size / seconds / bandwidth, "replayed": replayed}
    chunks = [Chunk([7], sizes.visible[0] - 1, workspace, wanted=1)]
    for way, model in ways.items():
        try:
            kernels = card.kernels(partial(model.forward, chunks))
        except RuntimeError as error:  # of a profiler that may not read the card's counters: the times are still of use
            yield {"way": way, "kernels": 0, "refused": str(error)}
        else:
            yield {"way": way, "kernels": sum(count for _, count, _ in kernels), "longest": kernels[:12]}
    for count in sizes.prefill:
        seconds = card.median_s(partial(graphed.forward, [Chunk([7] * count, 0, workspace, wanted=1)]), PREFILLS)
        share = 2 * products(sizes.models[name]) * count / seconds / rate
        yield {"prefill": count, "ms": seconds * 1e3, "tokens_per_s": count / seconds, "share": share}


def _about_decode(rows: Sequence[Row]) -> Iterator[Finding]:
    for model, own in grouped(rows, "model"):
        timed = {(row["way"], row["visible"], row["new"]): row for row in own if "visible" in row}
        for (way, visible, new), row in timed.items():
            if way == "graph":
                yield Check(f"{model}, {new} behind {visible}: a graph is replayed", row["replayed"])
        for visible in dict.fromkeys(visible for _, visible, _ in timed):
            yield _decode_line(model, visible, timed)
        kernels = ", ".join(f"{row['kernels']} {row['way']}" for row in own if "kernels" in row)
        prefills = [row for row in own if "prefill" in row]
        speeds = ", ".join(f"{row['prefill']} {row['tokens_per_s'] / 1e3:.0f}k {row['share']:.0%}" for row in prefills)
        yield f"{model:<5}kernels {kernels}; prompt tokens/s, share of the product's rate: {speeds}"


def _decode_line(model: str, visible: int, timed: Mapping[tuple[str, int, int], Row]) -> str:
    expected = EXPECTED_MS.get(model, {}).get(visible)
    parts = [f"{model:<5}{visible:>5} visible"]
    for way in ("graph", "eager"):
        own = [(new, row) for (its, seen, new), row in timed.items() if (its, seen) == (way, visible)]
        parts.append(f"{way} {' '.join(format(row['ms'], '.2f') for _, row in own)} ms")
        if way == "graph" and own:
            parts.append(f"{own[0][1]['share']:.0%} of bandwidth{f', expected {expected}' if expected else ''}")
    return "; ".join(parts)


def _recording(card: Card, sizes: Sizes) -> Iterator[Row]:
    graphed, _ = graphed_of(card, sizes, sizes.served)
    for number in range(2):
        before = card.available_bytes()
        workspace = graphed.new_workspace()
        made = card.available_bytes()
        started = time.perf_counter()
        count = record_all(graphed.prepare)
        card.wait()
        seconds = time.perf_counter() - started
        after = card.available_bytes()
        yield {
            "workspace": number,
            "bytes": workspace.bytes_per_token * sizes.context,
            "made_bytes": before - made,
            "recordings": count,
            "recorded_bytes": made - after,
            "seconds": seconds,
            "planned_bytes": _planned_graphs(sizes),
        }


def _planned_graphs(sizes: Sizes) -> int:
    """Bytes that the memory plan has for the graphs of a workspace of the served model, before one is measured."""
    demand = MemoryDemand(
        sizes.models[sizes.served], (), "bfloat16", "auto", sizes.context, 0, 0, 256, on_gpu=True, on_kernel=False
    )
    return plan_memory(demand, 2**40).graphs


def _about_recording(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        beyond = row["made_bytes"] - row["bytes"]
        count = max(1, row["recordings"])
        found = f"{beyond / 2**20:.0f} MiB of {row['planned_bytes'] / 2**20:.0f}"
        yield Check("what a workspace takes is seen", beyond >= 0, found)
        if row["workspace"]:  # the first one's graphs take their pool too, which is among what forwards take
            what = "the graphs that are recorded with a workspace are within the plan"
            yield Check(what, beyond <= row["planned_bytes"] + PLAN_SLACK, found)
        yield (
            f"workspace {row['workspace']}: made with {found} planned; {row['recordings']} recordings at rest, "
            f"{row['seconds'] / count * 1e3:.0f} ms and {row['recorded_bytes'] / count / 2**20:.2f} MiB each"
        )


def _sequences(card: Card, sizes: Sizes) -> Iterator[Row]:
    graphed, _ = graphed_of(card, sizes, sizes.served)
    workspaces = [graphed.new_workspace() for _ in range(max(sizes.sequences))]
    visible = sizes.visible[len(sizes.visible) // 2]
    for count in sizes.sequences:
        chunks = [Chunk([7], visible - 1 - place, workspaces[place], wanted=1) for place in range(count)]
        for chunk in chunks:
            record_for(graphed, chunk)
        with counting_eager(graphed) as eager:
            graphed.forward(chunks)
        graphed.prepare()  # the graph that this missed, if there can be one
        times = {
            "together": card.median_s(partial(graphed.plain.forward, chunks)),
            "in turn": card.median_s(partial(_in_turn, graphed, chunks)),
            "chosen": card.median_s(partial(graphed.forward, chunks)),
        }
        yield {"sequences": count, "ms": {way: 1e3 * s for way, s in times.items()}, "replayed": not eager.forwards}


def _in_turn(graphed: GraphedDecoder, chunks: Sequence[Chunk]) -> None:
    for chunk in chunks:
        graphed.forward([chunk])


def _about_sequences(rows: Sequence[Row], *, is_timed: bool) -> Iterator[Finding]:
    """The times of a simulated device say nothing."""
    for row in rows:
        times = row["ms"]
        best = min(times["together"], times["in turn"])
        if is_timed:
            found = f"{times['chosen']:.2f} ms, together {times['together']:.2f}, in turn {times['in turn']:.2f}"
            what = f"{row['sequences']} sequences: the faster way is the default"
            yield Check(what, times["chosen"] <= TOLERANCE * best, found)
        yield (
            f"{row['sequences']} sequences: {', '.join(f'{way} {ms:.2f} ms' for way, ms in times.items())}; "
            f"{'replayed' if row['replayed'] else 'eager'}"
        )

"""Times a forward of a few tokens on the CPU: the kernel, torch on the same buffers, and transformers.

    python bench/decode.py [--shape S --shape M --shape L] [--threads 1 --threads 2] [--level avx2] [--json FILE]
    python bench/decode.py --shape XL --threads 2 --weights int4 --no-peers --case 0+64 --case 2048+1 --rounds 3

Models have random weights. "2048+4" is a forward of four new tokens behind 2,048 resident ones, with the choices, or
logits, of all four. Engines take turns within a round, so that other load on the machine affects all of them;
figures are medians over rounds, with the quartiles and the fastest round. The share of bandwidth is the rate at which
a forward reads its bytes, relative to that of the same threads on a buffer of that size in the same round.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, cast

import torch
import transformers
import typer
from checkpoints import SHAPES, random_model
from figures import JsonFile, machine, write
from proof.models import products, random_weights
from rich.console import Console
from rich.table import Table

from inference.backends.cpu.decoder import KernelDecoder
from inference.backends.cpu.library import Level
from inference.backends.cpu.packing import WeightType
from inference.backends.llama.decoder import Decoder, rotation_tables
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Chunk
from inference.checkpoints.architecture import Architecture
from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace

CPU = torch.device("cpu")
CASES = ((512, 1), (2048, 1), (2048, 2), (2048, 4), (2048, 8))  # resident, new
TORCH = "torch bfloat16"
CALLS = 16  # in a row, of which the first half warms the caches up
ENOUGH = 4.0  # seconds: a forward that takes long is called less often, but not less than twice
WEIGHTS: tuple[WeightType, ...] = ("int4", "int8", "bfloat16", "float32")
REST = 0.01  # seconds, before them: torch's threads spin for a while when their work is done
BITS = {"float32": 16, "bfloat16": 16, "int8": 8.5, "int4": 5, "centred_int4": 4.5}  # per weight; ours fit bfloat16


Forward = Callable[[int, int], object]
"""Runs so many new tokens behind so many resident ones."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An implementation that runs forwards, with its number of threads."""

    name: str
    threads: int
    bytes_per_weight: float
    bytes_per_kv_value: int
    forward: Forward


def kernel(
    weights: DecoderWeights, shape: Architecture, weight_type: WeightType, threads: int, kv: str, level: Level | None = None
) -> Engine:
    """The kernel on a workspace of its own, at the given level or at this CPU's best one."""
    workspace = KVWorkspace(KVShape(shape.layers, shape.kv_heads, shape.head_dim, kv), max_resident())
    workspace.buffer.normal_()
    tables = rotation_tables(shape, {}, max_resident(), torch.float32, CPU)
    decoder = KernelDecoder(shape, weights, tables, weight_type, threads, level)
    return Engine(
        f"kernel {weight_type}, KV {kv}",
        threads,
        BITS[weight_type] / 8,
        workspace.buffer.itemsize,
        lambda resident, new: decoder.choices([Chunk([1] * new, resident, workspace, new)]),
    )


def torch_decoder(weights: DecoderWeights, shape: Architecture, threads: int) -> Engine:
    """Our decoder without the kernel, in bfloat16."""
    decoder = Decoder(shape, {}, weights, max_resident())
    workspace = decoder.new_workspace()
    workspace.buffer.normal_()

    def forward(resident: int, new: int) -> object:
        return decoder.logits(decoder.hidden([Chunk([1] * new, resident, workspace)]))

    return Engine(TORCH, threads, 2, 2, forward)


def transformers_model(shape: Architecture, threads: int) -> Engine:
    """transformers' own module of the same dimensions, in bfloat16, with its dynamic cache."""
    model = random_model(shape).eval()
    caches: dict[int, transformers.DynamicCache] = {}

    @torch.inference_mode()
    def forward(resident: int, new: int) -> object:
        if resident not in caches:
            caches[resident] = transformers.DynamicCache(config=model.config)
            model(torch.ones(1, resident, dtype=torch.long), past_key_values=caches[resident], logits_to_keep=1)
        logits = model(torch.ones(1, new, dtype=torch.long), past_key_values=caches[resident]).logits
        caches[resident].crop(-new)
        return logits

    return Engine("transformers bfloat16", threads, 2, 2, forward)


def max_resident() -> int:
    """Room for the longest case."""
    return max(resident + new for resident, new in CASES)


def bytes_read(shape: Architecture, engine: Engine, resident: int) -> float:
    """The bytes that one forward reads: every weight of the layers and of the head, and all resident KV."""
    of_head = max(engine.bytes_per_weight, BITS["int8"] / 8)  # int4's head has 8 bits
    weights = products(shape) * engine.bytes_per_weight + shape.vocabulary * shape.hidden * of_head
    return weights + resident * shape.kv_values_per_token * engine.bytes_per_kv_value


def median_time(run: Callable[[], object]) -> float:
    """Seconds of a call with caches as warm as during decoding."""
    times = []
    time.sleep(REST)
    while len(times) < CALLS and (len(times) < 2 or sum(times) < ENOUGH):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times[len(times) // 2 :])


def bandwidth(size: float, buffers: dict[int, torch.Tensor]) -> float:
    """Bytes per second that torch's threads read of a buffer of this size."""
    count = max(1, int(size) // 4)
    buffer = buffers.setdefault(count, torch.ones(count))
    return count * 4 / median_time(buffer.sum)


def engines_of(
    shape: Architecture, threads: list[int], peers: bool, level: Level | None, types: Sequence[WeightType]
) -> Iterator[Engine]:
    """All engines to compare; engines of the same weights share them."""
    weights = random_weights(shape, torch.bfloat16, CPU)
    for count in threads:
        for weight_type in types:
            kv = "float32" if weight_type == "float32" else "bfloat16"
            yield kernel(weights, shape, weight_type, count, kv, level)
    if peers:
        for count in threads:
            yield torch_decoder(weights, shape, count)
            yield transformers_model(shape, count)


def time_in_turns(
    engines: list[Engine], shape: Architecture, resident: int, new: int, rounds: int
) -> tuple[dict[Engine, list[float]], dict[Engine, list[float]]]:
    """The seconds and the share of bandwidth of each engine and round."""
    seconds: dict[Engine, list[float]] = {engine: [] for engine in engines}
    shares: dict[Engine, list[float]] = {engine: [] for engine in engines}
    buffers: dict[int, torch.Tensor] = {}
    for _ in range(rounds):
        for engine in engines:
            torch.set_num_threads(engine.threads)
            taken = median_time(partial(engine.forward, resident, new))
            size = bytes_read(shape, engine, resident)
            seconds[engine].append(taken)
            shares[engine].append(size / taken / bandwidth(size, buffers))
    return seconds, shares


def quartiles(seconds: list[float]) -> tuple[float, float]:
    """The lower and the upper quartile, in microseconds; of one or two rounds the fastest and the slowest."""
    # Of two, Python's quartiles lie outside of both, and below zero where one took long.
    low, _, high = statistics.quantiles(seconds, n=4) if len(seconds) > 2 else (min(seconds), 0.0, max(seconds))
    return round(low * 1e6, 1), round(high * 1e6, 1)


def measure(
    name: str,
    threads: list[int],
    rounds: int,
    peers: bool,
    level: Level | None,
    types: Sequence[WeightType],
    cases: Sequence[tuple[int, int]],
) -> Iterator[dict[str, Any]]:
    """The rows of one shape, one per case and engine: medians over rounds.

    `fastest` is the round that on a busy machine was nearest to an idle one; `times_torch` says how many times as fast
    as torch the engine was in the same rounds.
    """
    shape = SHAPES[name]
    engines = list(engines_of(shape, threads, peers, level, types))
    torch_of = {engine.threads: engine for engine in engines if engine.name == TORCH}
    for resident, new in cases:
        seconds, shares = time_in_turns(engines, shape, resident, new, rounds)
        for engine, times in seconds.items():
            theirs = seconds[torch_of[engine.threads]] if torch_of else []
            ratios = [slow / quick for slow, quick in zip(theirs, times, strict=bool(theirs))]
            yield {
                "shape": name,
                "case": f"{resident}+{new}",
                "engine": engine.name,
                "threads": engine.threads,
                "microseconds": round(statistics.median(times) * 1e6, 1),
                "quartiles": quartiles(times),
                "fastest": round(min(times) * 1e6, 1),
                "times_torch": round(statistics.median(ratios), 2) if ratios else None,
                "share_of_bandwidth": round(statistics.median(shares[engine]), 3),
            }


def main(
    shape: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(SHAPES)}.")] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1)] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 20,
    peers: Annotated[bool, typer.Option(help="Measure torch and transformers too.")] = True,
    level: Annotated[str | None, typer.Option(help="The kernel's instruction-set level, such as avx2.")] = None,
    weights: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(WEIGHTS)}.")] = None,
    case: Annotated[list[str] | None, typer.Option(help="Resident and new tokens, such as 2048+1.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per engine and case."""
    torch.manual_seed(0)
    rows = []
    types = cast("list[WeightType]", weights) or WEIGHTS
    cases = [(int(resident), int(new)) for resident, new in (one.split("+") for one in case)] if case else CASES
    table = Table("shape", "case", "engine", "threads", "µs", "quartiles", "fastest", "times torch", "share of bandwidth")
    for name in shape or ["S", "M", "L"]:
        for row in measure(name, threads or [1, 2], rounds, peers, cast("Level | None", level), types, cases):
            rows.append(row)
            table.add_row(*map(str, row.values()))
        gc.collect()
    Console(width=120).print(table)
    write(json_file, {"machine": machine(), "rounds": rounds, "rows": rows})


if __name__ == "__main__":
    typer.run(main)

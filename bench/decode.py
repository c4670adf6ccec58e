"""What a forward of a few tokens costs on the CPU: the kernel, torch on the same buffers, and transformers.

    python bench/decode.py [--shape S --shape M --shape L] [--threads 1 --threads 2] [--rounds 20] [--json FILE]

Models have random weights. "2048+4" is a forward of four new tokens behind 2,048 resident ones, with the logits of
all four. Engines take turns within a round, so that whatever else the machine does meets all of them; figures are
medians over rounds. The share of bandwidth compares the bytes that a forward has to read with what the same threads
read of a buffer of that size in the same round.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import transformers
import typer
from rich.console import Console
from rich.table import Table

from inference.architecture import Architecture
from inference.chunk import Chunk
from inference.decoder import Decoder
from inference.decoder_weights import DecoderWeights, LayerWeights
from inference.kernel import KernelDecoder, WeightType
from inference.rope import rotation_tables
from kv_store.workspace import KVShape, KVWorkspace

CPU = torch.device("cpu")
CASES = ((512, 1), (2048, 1), (2048, 2), (2048, 4), (2048, 8))  # resident, new
TORCH = "torch bfloat16"
CALLS = 5  # in a row, of which the first warms the caches up
BITS = {"float32": 16, "bfloat16": 16, "int8": 8.25}  # to a weight, scales included; ours fit bfloat16


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's dimensions; head_dim is 64 for all."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def architecture(self) -> Architecture:
        return Architecture(
            model_type="qwen2",
            layers=self.layers,
            hidden=self.hidden,
            intermediate=self.intermediate,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=64,
            vocabulary=self.vocabulary,
            norm_epsilon=1e-6,
            max_positions=4096,
            tied_embeddings=True,
            qk_norm=False,
            rope_theta=10000.0,
            rope_type="default",
        )


SHAPES = {
    "tiny": Shape(1, 64, 64, 1, 1, 64),
    "S": Shape(8, 320, 864, 5, 1, 8192),
    "M": Shape(12, 512, 1408, 8, 2, 8192),
    "L": Shape(24, 896, 4864, 14, 2, 151936),  # of Qwen2.5-Coder-0.5B
}


def random_weights(shape: Architecture) -> DecoderWeights:
    """bfloat16 weights of about the size that trained ones have."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=torch.bfloat16).normal_(std=columns**-0.5)

    def ones(count: int) -> torch.Tensor:
        return torch.ones(count, dtype=torch.bfloat16)

    attended, qkv = shape.heads * shape.head_dim, (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    embedding = matrix(shape.vocabulary, shape.hidden)
    layers = tuple(
        LayerWeights(
            attention_norm=ones(shape.hidden),
            qkv=matrix(qkv, shape.hidden),
            qkv_bias=ones(qkv),
            q_norm=None,
            k_norm=None,
            attention_out=matrix(shape.hidden, attended),
            attention_out_bias=None,
            mlp_norm=ones(shape.hidden),
            gate_up=matrix(2 * shape.intermediate, shape.hidden),
            gate_up_bias=None,
            down=matrix(shape.hidden, shape.intermediate),
            down_bias=None,
        )
        for _ in range(shape.layers)
    )
    return DecoderWeights(embedding, layers, ones(shape.hidden), embedding)


Forward = Callable[[int, int], object]
"""Runs so many new tokens behind so many resident ones."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Something that runs forwards with so many threads."""

    name: str
    threads: int
    bytes_per_weight: float
    bytes_per_kv_value: int
    forward: Forward


def kernel(weights: DecoderWeights, shape: Architecture, weight_type: WeightType, threads: int, kv: str) -> Engine:
    """The kernel on a workspace of its own."""
    dtype = getattr(torch, kv)
    workspace = KVWorkspace(KVShape(shape.layers, shape.kv_heads, shape.head_dim, dtype), max_resident())
    workspace.buffer.normal_()
    tables = rotation_tables(shape, {}, max_resident(), torch.float32, CPU)
    decoder = KernelDecoder(shape, weights, tables, weight_type, threads)
    return Engine(
        f"kernel {weight_type}, KV {kv}",
        threads,
        BITS[weight_type] / 8,
        dtype.itemsize,
        lambda resident, new: decoder.choices([Chunk([1] * new, resident, workspace, new)]),
    )


def torch_decoder(weights: DecoderWeights, shape: Architecture, threads: int) -> Engine:
    """Our decoder without the kernel, in bfloat16."""
    workspace = KVWorkspace(KVShape(shape.layers, shape.kv_heads, shape.head_dim, torch.bfloat16), max_resident())
    workspace.buffer.normal_()
    decoder = Decoder(shape, {}, weights, workspace.max_tokens)

    def forward(resident: int, new: int) -> object:
        return decoder.logits(decoder.hidden([Chunk([1] * new, resident, workspace)]))

    return Engine(TORCH, threads, 2, 2, forward)


def transformers_model(shape: Architecture, threads: int) -> Engine:
    """transformers' own module of the same dimensions, in bfloat16, with its dynamic cache."""
    config = transformers.Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=True,
    )
    model = transformers.Qwen2ForCausalLM(config).bfloat16().eval()
    caches: dict[int, transformers.DynamicCache] = {}

    @torch.inference_mode()
    def forward(resident: int, new: int) -> object:
        if resident not in caches:
            caches[resident] = transformers.DynamicCache(config=config)
            model(torch.ones(1, resident, dtype=torch.long), past_key_values=caches[resident], logits_to_keep=1)
        logits = model(torch.ones(1, new, dtype=torch.long), past_key_values=caches[resident]).logits
        caches[resident].crop(-new)
        return logits

    return Engine("transformers bfloat16", threads, 2, 2, forward)


def max_resident() -> int:
    """Room for the longest case."""
    return max(resident + new for resident, new in CASES)


def bytes_read(shape: Architecture, engine: Engine, resident: int) -> float:
    """What one forward has to read: every weight of the layers and of the head, and all resident KV."""
    attended = shape.heads * shape.head_dim
    qkv = attended + 2 * shape.kv_heads * shape.head_dim
    layer = shape.hidden * (qkv + attended + 3 * shape.intermediate)
    weights = shape.layers * layer + shape.vocabulary * shape.hidden
    return weights * engine.bytes_per_weight + resident * shape.kv_values_per_token * engine.bytes_per_kv_value


def median_time(run: Callable[[], object]) -> float:
    """Seconds of a call whose data is where it would be in the midst of decoding."""
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def bandwidth(size: float, buffers: dict[int, torch.Tensor]) -> float:
    """Bytes per second that torch's threads read of a buffer of this size."""
    count = max(1, int(size) // 4)
    buffer = buffers.setdefault(count, torch.ones(count))
    return count * 4 / median_time(buffer.sum)


def engines_of(shape: Architecture, threads: list[int], peers: bool) -> Iterator[Engine]:
    """All that take part; those of the same weights share them."""
    weights = random_weights(shape)
    for count in threads:
        yield kernel(weights, shape, "int8", count, "float32")
        yield kernel(weights, shape, "float32", count, "float32")
        yield kernel(weights, shape, "bfloat16", count, "bfloat16")
    if peers:
        for count in threads:
            yield torch_decoder(weights, shape, count)
            yield transformers_model(shape, count)


@dataclass(frozen=True, slots=True)
class Row:
    """One engine in one case: medians over rounds."""

    shape: str
    case: str
    engine: str
    threads: int
    microseconds: float
    times_torch: float | None  # how many times as fast as torch in the same rounds
    share_of_bandwidth: float


def time_in_turns(
    engines: list[Engine], shape: Architecture, resident: int, new: int, rounds: int
) -> tuple[dict[Engine, list[float]], dict[Engine, list[float]]]:
    """Of each engine and round, the seconds and the share of bandwidth."""
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


def measure(name: str, threads: list[int], rounds: int, peers: bool) -> Iterator[Row]:
    """The rows of one shape."""
    shape = SHAPES[name].architecture
    engines = list(engines_of(shape, threads, peers))
    torch_of = {engine.threads: engine for engine in engines if engine.name == TORCH}
    for resident, new in CASES:
        seconds, shares = time_in_turns(engines, shape, resident, new, rounds)
        for engine, times in seconds.items():
            theirs = seconds[torch_of[engine.threads]] if torch_of else []
            ratios = [slow / quick for slow, quick in zip(theirs, times, strict=bool(theirs))]
            yield Row(
                shape=name,
                case=f"{resident}+{new}",
                engine=engine.name,
                threads=engine.threads,
                microseconds=round(statistics.median(times) * 1e6, 1),
                times_torch=round(statistics.median(ratios), 2) if ratios else None,
                share_of_bandwidth=round(statistics.median(shares[engine]), 3),
            )


def main(
    shape: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(SHAPES)}.")] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1)] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 20,
    peers: Annotated[bool, typer.Option(help="Measure torch and transformers too.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Measure, and print a line per engine and case."""
    torch.manual_seed(0)
    rows: list[Row] = []
    table = Table("shape", "case", "engine", "threads", "µs", "times torch", "share of bandwidth")
    for name in shape or ["S", "M", "L"]:
        for row in measure(name, threads or [1, 2], rounds, peers):
            rows.append(row)
            table.add_row(*(str(value) for value in asdict(row).values()))
        gc.collect()
    Console(width=120).print(table)
    if json_file is not None:
        figures = {"machine": platform.processor() or platform.machine(), "rounds": rounds}
        json_file.write_text(json.dumps(figures | {"rows": [asdict(row) for row in rows]}, indent=2))


if __name__ == "__main__":
    typer.run(main)

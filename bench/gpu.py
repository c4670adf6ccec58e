"""Times decode and prefill on a CUDA device, with CUDA graphs and without.

    python bench/gpu.py --model Qwen/Qwen2.5-Coder-1.5B

Prints one table: tokens per second of prefill, by chunk; milliseconds per token of decoding, from graphs and launched
kernel by kernel; the memory plan, and the memory that the device has allocated at the end. Medians of --rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Literal

import torch
import typer

from inference.backends import cuda
from inference.backends.chunk import Chunk
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import GraphedDecoder
from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading.default_dtype import default_dtype
from inference.loading.llama import load_decoder
from inference.loading.options import EngineOptions
from protocol.errors import BadInput
from protocol.settings import TINY_MODEL, Weights


def main(
    model: str = TINY_MODEL,
    device: str = "cuda",
    weights: Literal["auto", "int8", "fp8"] = "auto",
    context: int = 2048,
    rounds: int = 20,
) -> None:
    """Print the table, or a message if there is no CUDA device."""
    try:
        found = cuda.find_device(device)
    except BadInput as error:
        raise SystemExit(str(error)) from error
    cuda.use(found)
    for line in measure(model, found, weights, context, rounds):
        print(line)


def measure(model: str, device: torch.device, weights: Weights, context: int, rounds: int) -> list[str]:
    """The lines of the table."""
    checkpoint = find_checkpoint(model)
    shape = checkpoint.architecture
    context = min(context, shape.max_positions)
    name = default_dtype("cuda", shape, may_use_kernel=False, capability=cuda.capability(device))
    settings = EngineOptions(model, weights=weights)
    graphed = load_decoder(checkpoint, shape, context, device, getattr(torch, name), settings, lambda *_: None)  # type: ignore[arg-type]
    assert isinstance(graphed, GraphedDecoder)
    workspace = graphed.new_workspace()
    plain: Decoder = graphed.plain
    token_ids = [7] * context
    lines = [f"{model} on {device}, {name}, weights {weights}, context {context}"]
    for size in (32, 128, 256, context - 64):
        took = median_s(lambda size=size: plain.forward([Chunk(token_ids[:size], 0, workspace, 1)]), device, rounds)  # type: ignore[misc]
        lines.append(f"prefill of {size:5} tokens: {took * 1e3:8.2f} ms, {size / took:9.0f} tokens/s")
    started = time.perf_counter()
    count = 0
    while graphed.prepare():
        count += 1
    lines.append(f"{count} graphs recorded in {time.perf_counter() - started:.1f} s")
    for size in (1, 4, 16):
        chunk = Chunk(token_ids[:size], context - 64, workspace, 1)
        eager = median_s(lambda chunk=chunk: plain.forward([chunk]), device, rounds)  # type: ignore[misc]
        replayed = median_s(lambda chunk=chunk: graphed.forward([chunk]), device, rounds)  # type: ignore[misc]
        lines.append(f"decode of {size:2} tokens: {eager * 1e3:7.3f} ms eager, {replayed * 1e3:7.3f} ms from a graph")
    lines.append(
        f"allocated: {torch.cuda.memory_allocated(device) / 1e6:.0f} MB, free: {cuda.free_bytes(device) / 1e6:.0f} MB"
    )
    return lines


def median_s(work: Callable[[], object], device: torch.device, rounds: int) -> float:
    """The median seconds of `work`, after one round that does not count."""
    times = []
    for _ in range(rounds + 1):
        cuda.wait(device)
        started = time.perf_counter()
        work()
        cuda.wait(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


if __name__ == "__main__":
    typer.run(main)

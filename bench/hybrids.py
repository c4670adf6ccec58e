"""Compares hybrid models on the CPU kernel with llama-server, on one GGUF file, in turns.

    python bench/hybrids.py --server PATH/TO/llama-server [--shape LFM2-350M --shape Qwen3.5-0.8B] [--json FILE]

Decoding: one token behind 512, greedy, the median of a text. Keystrokes: a recorded session end to end through
midfill's language server, and as `/infill` requests to llama-server on the windows of midfill's own PSM strategy, up
to 16 tokens of one line each. Weights are random, so only times and token counts mean something. On a busy machine,
give each engine one thread: llama.cpp's threads wait for each other.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from figures import RANKS, JsonFile, machine, percentiles, write
from hybrid_files import SHAPES, write_file
from llama_server import LlamaServer, run_llama_server
from llamacpp import play_in_turns, ratios, version
from playing import TRACE, Session, open_midfill
from rich.console import Console
from rich.table import Table
from sides import LlamaSide, MidfillSide

from inference.backends.model import Chunk, Model
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import open_checkpoint
from inference.loading.components import load_decoder
from inference.loading.options import EngineOptions
from midfill.replay.trace import read_trace

RESIDENT, NEW = 512, 32  # tokens
OURS, THEIRS = "midfill", "llama.cpp"


def load(file: Path, threads: int) -> Model:
    """The file on the CPU kernel."""
    checkpoint = open_checkpoint(file, file.name)
    assert isinstance(checkpoint.architecture, Architecture), f"{file} is not run by the kernel"
    options = EngineOptions(str(file), threads=threads)
    shape, cpu = checkpoint.architecture, torch.device("cpu")
    return load_decoder(checkpoint, shape, RESIDENT + NEW + 1, cpu, torch.float32, options, lambda *_: None)


def decode(model: Model, prompt: list[int]) -> float:
    """Milliseconds of a token, the median."""
    workspace = model.new_workspace()
    ((choice,),) = model.forward([Chunk(prompt, 0, workspace, 1)])
    times = []
    for position in range(RESIDENT, RESIDENT + NEW):
        since = time.perf_counter()
        ((choice,),) = model.forward([Chunk([choice.token_id], position, workspace, 1)])
        times.append((time.perf_counter() - since) * 1000)
    return median(times)


def decode_there(server: LlamaServer, prompt: list[int]) -> float:
    """Milliseconds of a token by the server's own clock."""
    body = {"prompt": prompt, "n_predict": NEW, "temperature": 0.0, "top_k": 1, "samplers": ["top_k"]}
    return float(server.post("/completion", body)["timings"]["predicted_per_token_ms"])


def decoding(file: Path, program: Path, threads: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a token, in each round, of both; the text differs between rounds, so that nothing is kept."""
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    model = load(file, threads)
    with run_llama_server([str(program)], file, threads, spm=False) as server:
        for number in range(rounds):
            prompt = [300 + (7 * place + number) % 1000 for place in range(RESIDENT)]
            times[OURS].append(decode(model, prompt))
            times[THEIRS].append(decode_there(server, prompt))
    return times


async def keystrokes(file: Path, program: Path, threads: int, session: Session) -> dict[str, Any]:
    """Percentiles of the times and of the recomputed tokens of both sides' keystrokes."""
    settings = {"model": str(file), "multiLine": False, "threads": threads}
    with run_llama_server([str(program)], file, threads, spm=False) as server:
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(open_midfill(session, settings))
            sides = [MidfillSide(OURS, target), LlamaSide(THEIRS, session, server, announce_moves=False)]
            times = await play_in_turns(sides, session)
    return {
        name: {
            "time_to_suggestion_ms": percentiles([keystroke.milliseconds for keystroke in timed]),
            "recomputed_tokens": percentiles([keystroke.recomputed_tokens for keystroke in timed]),
        }
        for name, timed in times.items()
    }


def main(
    server: Annotated[Path, typer.Option(help="llama-server.")],
    shape: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(SHAPES)}.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each engine.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Of decoding.")] = 5,
    limit: Annotated[int, typer.Option(min=1, help="Number of keystrokes to measure.")] = 40,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per shape and engine."""
    session = Session(read_trace(TRACE), "rust", 0, limit, 5, 16)
    results: dict[str, Any] = {}
    table = Table("model", "engine", "a token behind 512, ms", *(f"key p{rank}, ms" for rank in RANKS), "recomputed")
    for name in shape or list(SHAPES):
        with tempfile.TemporaryDirectory() as folder:
            file = write_file(name, Path(folder) / f"{name}.gguf")
            decoded = decoding(file, server, threads, rounds)
            played = asyncio.run(keystrokes(file, server, threads, session))
        keys = {engine: played[engine]["time_to_suggestion_ms"] for engine in played}
        results[name] = {
            "decode_ms": decoded,
            "decode_times": median(there / here for here, there in zip(decoded[OURS], decoded[THEIRS], strict=True)),
            "keystrokes": played,
            "keystroke_times": ratios(keys[OURS], keys[THEIRS]),
        }
        for engine in (OURS, THEIRS):
            counts = "/".join(f"{count:.0f}" for count in played[engine]["recomputed_tokens"].values())
            shown = (f"{milliseconds:.0f}" for milliseconds in keys[engine].values())
            table.add_row(name, engine, f"{median(decoded[engine]):.1f}", *shown, counts)
        found = results[name]
        table.add_row(name, "times", f"{found['decode_times']:.2f}", *map(str, found["keystroke_times"].values()))
    Console().print(table)
    write(json_file, {"machine": machine(), "llama.cpp": version(server), "models": results})


if __name__ == "__main__":
    typer.run(main)

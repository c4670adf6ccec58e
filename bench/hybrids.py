"""Compares hybrid models on the CPU kernel with llama-server, on one GGUF file, in turns.

    python bench/hybrids.py --server PATH/TO/llama-server [--shape LFM2-350M --shape Qwen3.5-0.8B] [--json FILE]

Decoding: one token behind 512, greedy, the median of a text. Keystrokes: a recorded session end to end through
midfill's language server, and as `/infill` requests to llama-server on the windows of midfill's own PSM strategy, half
as large as by default, up to 16 tokens of one line each. llama-server keeps states of recurrent layers for
`/completion` alone (`do_checkpoint` in its server-context.cpp), so that `/infill` computes the whole prompt at each
key; it is asked at every fourth one. Weights are random, so only times and token counts mean something. On a busy
machine, give each engine one thread: llama.cpp's threads wait for each other.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from figures import JsonFile, machine, write
from hybrid_files import SHAPES, write_file
from llama_server import LlamaServer, run_llama_server
from llamacpp import REST_SECONDS, ratios, version
from playing import TRACE, Session, open_midfill
from rich.console import Console
from rich.table import Table
from sides import LlamaSide, MidfillSide, Timed, figures

from inference.backends.model import Chunk, Model
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import open_checkpoint
from inference.loading.kernel import load_on_kernel
from inference.loading.options import EngineOptions
from lsp_server.prompts.anchors import WindowBudget
from midfill.replay.results import RANKS
from midfill.replay.trace import read_trace

RESIDENT, NEW = 512, 32  # tokens
WINDOWS = WindowBudget(prefix_tokens=1024, suffix_tokens=512)
EVERY = 4  # llama-server is asked at one in so many keystrokes
WARM_UP = 4  # keystrokes that are not counted, of llama-server the first one
OURS, THEIRS = "midfill", "llama.cpp"


def load(file: Path, threads: int) -> Model:
    """The file on the CPU kernel."""
    checkpoint = open_checkpoint(file, file.name)
    assert isinstance(checkpoint.architecture, Architecture), f"{file} is not run by the kernel"
    options = EngineOptions(str(file), threads=threads)
    shape = checkpoint.architecture
    return load_on_kernel(checkpoint, shape, RESIDENT + NEW + 1, "float32", options, lambda *_: None)


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
    """The figures of both sides' keystrokes."""
    windows = {"prefixTokens": WINDOWS.prefix_tokens, "suffixTokens": WINDOWS.suffix_tokens}
    settings = {"model": str(file), "multiLine": False, "threads": threads, **windows}
    times: dict[str, list[Timed]] = {OURS: [], THEIRS: []}
    with run_llama_server([str(program)], file, threads, spm=False) as server:
        async with open_midfill(session, settings) as target:
            ours, theirs = MidfillSide(OURS, target), LlamaSide(THEIRS, session, server, WINDOWS, announce_moves=False)
            for number, step in enumerate(session.steps()):
                await asyncio.sleep(REST_SECONDS)
                times[OURS].append(await ours.play(step))
                if number % EVERY:
                    theirs.follow(step)
                else:
                    times[THEIRS].append(await theirs.play(step))
    counted = {OURS: times[OURS][WARM_UP:], THEIRS: times[THEIRS][1:]}
    return {name: figures(timed) for name, timed in counted.items()}


def rows(decoded: dict[str, list[float]], played: dict[str, Any]) -> Iterator[list[str]]:
    """An engine's milliseconds and counts, and behind those of llama-server how many times as long it takes."""
    for engine in played or decoded:
        cells, factors = [""] * 4, [""] * 4
        if here := decoded.get(engine):
            cells[0] = f"{median(here):.1f}"
            factors[0] = f"{median(map(truediv, here, decoded[OURS])):.2f}"
        if keys := played.get(engine):
            times = keys["time_to_suggestion_ms"]
            cells[1:] = [f"{milliseconds:.0f}" for milliseconds in times.values()]
            factors[1:] = map(str, ratios(played[OURS]["time_to_suggestion_ms"], times).values())
            cells.append("/".join(f"{count:.0f}" for count in keys["recomputed_tokens"].values()))
            cells.append(f"{keys['generated_tokens_mean']:.1f}")
        yield [engine, *cells]
        if engine != OURS:
            yield ["  times", *factors]


def main(
    server: Annotated[Path, typer.Option(help="llama-server.")],
    shape: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(SHAPES)}.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each engine.")] = 2,
    rounds: Annotated[int, typer.Option(min=0, help="Of decoding; 0: keystrokes alone.")] = 5,
    start: Annotated[int, typer.Option(min=0, help="The session's first keystroke.")] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Number of keystrokes to measure; 0: decoding alone.")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a table for each shape."""
    session = Session(read_trace(TRACE), "rust", start, limit, WARM_UP, 16)
    results: dict[str, Any] = {}
    for name in shape or list(SHAPES):
        with tempfile.TemporaryDirectory() as folder:
            file = write_file(name, Path(folder) / f"{name}.gguf")
            decoded = decoding(file, server, threads, rounds) if rounds else {}
            played = asyncio.run(keystrokes(file, server, threads, session)) if limit else {}
        results[name] = {"decode_ms": decoded, "keystrokes": played}
        headings = ("a token behind 512, ms", *(f"key p{rank}, ms" for rank in RANKS), "recomputed", "new tokens")
        table = Table(name, *headings)
        for row in rows(decoded, played):
            table.add_row(*row)
        Console(width=120).print(table)
    write(json_file, {"machine": machine(), "llama.cpp": version(server), "threads": threads, "models": results})


if __name__ == "__main__":
    typer.run(main)

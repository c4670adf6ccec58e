"""Compares midfill with llama-bench in turns: one token, four tokens to verify, and a prefill.

    python bench/llama_tokens.py --llama-bench PATH [--shape S --shape SmolLM2] [--rounds 5] [--models FOLDER]

"512+4" is a forward of four tokens behind 512 resident ones; ours gives the logits of all four, llama-bench's those of
the last. "0+2048" is a prefill: ours by the engine, in chunks, as for a request. llama-bench has the same number
of threads, and in every case flash attention on or off, the better one in the first round; its times are per forward,
without tokenizer and sampling, as are the kernel's. Models have random weights; `--models` keeps their files for the
next run.
"""

from __future__ import annotations

import json
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from checkpoints import SHAPES, write_checkpoint
from decode import kernel, median_time
from figures import JsonFile, machine, write
from llama_server import quantize
from proof.models import random_weights
from rich.console import Console
from rich.table import Table

from inference.engine.engine import Engine
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from midfill_lab.recipe.to_gguf import write_gguf
from protocol.messages import CompletionRequest, Prompt
from protocol.settings import Dtype, Weights

KINDS = ("bf16", "q8_0", "q4_0")
GENERATED = 16  # tokens of a llama-bench run; the time of one is the run's mean
PREFILL = 2048
CASES: dict[str, list[str]] = {
    "512+1": ["-p", "0", "-n", str(GENERATED), "-d", "512"],
    "512+4": ["-p", "4", "-n", "0", "-d", "512"],
    "2048+1": ["-p", "0", "-n", str(GENERATED), "-d", "2048"],
    "2048+4": ["-p", "4", "-n", "0", "-d", "2048"],
    f"0+{PREFILL}": ["-p", str(PREFILL), "-n", "0", "-d", "0"],
}
PREFILLS: tuple[tuple[Dtype, Weights], ...] = (
    ("float32", "auto"),
    ("bfloat16", "auto"),
    ("bfloat16", "int8"),
    ("bfloat16", "int4"),
)

Row = tuple[str, str]  # case and engine
Times = dict[Row, list[float]]  # seconds per forward, by rounds


@dataclass(frozen=True, slots=True)
class LlamaBench:
    """llama-bench and its model files, by kind of weights."""

    program: Path
    files: dict[str, Path]
    threads: int

    def seconds(self, kind: str, case: str, flash_attention: str) -> float:
        """The median time of a forward."""
        options = [*CASES[case], "-fa", flash_attention, "-t", str(self.threads), "-r", "3", "-o", "json"]
        command = [str(self.program), "-m", str(self.files[kind]), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        (test,) = json.loads(done.stdout)
        forwards = max(1, test["n_gen"])
        return median(test["samples_ns"]) / 1e9 / forwards


def play_llama(bench: LlamaBench, chosen: dict[Row, str], times: Times) -> None:
    """Run one round; the first one puts the better setting of flash attention into `chosen`."""
    for case in CASES:
        for kind in bench.files:
            row = (case, f"llama.cpp {kind}")
            choices = [chosen[row]] if row in chosen else ["on", "off"]
            taken = {choice: bench.seconds(kind, case, choice) for choice in choices}
            chosen[row] = min(taken, key=taken.__getitem__)
            times.setdefault(row, []).append(taken[chosen[row]])


def kernels(shape: str, threads: int) -> dict[str, Callable[[int, int], object]]:
    """The kernel's forwards by name, with each kind of weights."""
    architecture = SHAPES[shape]
    weights = random_weights(architecture, torch.bfloat16, torch.device("cpu"))
    engines = [
        kernel(weights, architecture, "centred_int4", threads, "bfloat16"),
        kernel(weights, architecture, "int4", threads, "bfloat16"),
        kernel(weights, architecture, "int8", threads, "float32"),
        kernel(weights, architecture, "int8", threads, "bfloat16"),
        kernel(weights, architecture, "float32", threads, "float32"),
        kernel(weights, architecture, "bfloat16", threads, "bfloat16"),
    ]
    return {engine.name: engine.forward for engine in engines}


def prefill_seconds(engine: Engine, prompt: Prompt) -> float:
    """The seconds of a prefill of PREFILL tokens, scaled from a prompt of about as many."""
    usage = engine.complete(CompletionRequest("prefill", prompt, max_tokens=0, reuse=False)).usage
    return usage.prefill_ms / 1000 * PREFILL / usage.recomputed_tokens


def prompt_of_prefill(engine: Engine) -> Prompt:
    """Some of the standard library's code: its first PREFILL tokens, markers included as nearly as text allows."""
    text = Path(sysconfig.get_path("stdlib"), "argparse.py").read_text(encoding="utf-8")
    token_ids = engine.tokenizer.encode(text)[: PREFILL - 3]
    stream = engine.tokenizer.text_stream()
    for token_id in token_ids:
        stream.push(token_id)
    return Prompt(stream.text, "")


def measure(shape: str, folder: Path, program: Path, threads: int, rounds: int) -> Times:
    """The seconds per forward of all rows."""
    checkpoint = folder / shape
    files = prepare(shape, checkpoint, program.with_name("llama-quantize"))
    bench = LlamaBench(program, files, threads)
    forwards = kernels(shape, threads)
    times: Times = {}
    chosen: dict[Row, str] = {}
    with ExitStack() as stack:
        engines = {}
        for dtype, stored in PREFILLS:
            name = f"engine {dtype}" if stored == "auto" else f"engine {stored}"
            options = EngineOptions(str(checkpoint), context_tokens=8192, dtype=dtype, weights=stored, threads=threads)
            engines[name] = load_engine(options)
            stack.callback(engines[name].close)
        for _ in range(rounds):
            play_llama(bench, chosen, times)
            torch.set_num_threads(threads)
            for name, forward in forwards.items():
                for case in [case for case in CASES if not case.startswith("0+")]:
                    resident, new = map(int, case.split("+"))
                    taken = median_time(partial(forward, resident, new))
                    times.setdefault((case, name), []).append(taken)
            for name, engine in engines.items():
                taken = prefill_seconds(engine, prompt_of_prefill(engine))
                times.setdefault((f"0+{PREFILL}", name), []).append(taken)
    return times


def prepare(shape: str, checkpoint: Path, quantizer: Path) -> dict[str, Path]:
    """The paths of the checkpoint and its GGUF files; missing ones are written."""
    if not (checkpoint / "config.json").exists():
        write_checkpoint(shape, checkpoint)
    files = {kind: checkpoint / f"{kind}.gguf" for kind in KINDS}
    if not files["bf16"].exists():
        write_gguf(str(checkpoint), files["bf16"])
    for kind in KINDS[1:]:
        if not files[kind].exists():
            quantize(quantizer, files["bf16"], files[kind], kind)
    return files


def figures(times: Times) -> list[dict[str, Any]]:
    """A row per case and engine: the median time, its spread, and each peer's time as a multiple of it."""
    rows = []
    for (case, name), taken in sorted(times.items(), key=lambda item: list(CASES).index(item[0][0])):
        peers = {kind: times[case, f"llama.cpp {kind}"] for kind in KINDS}
        rows.append(
            {
                "case": case,
                "engine": name,
                "milliseconds": round(median(taken) * 1000, 4),
                "spread_ms": [round(min(taken) * 1000, 4), round(max(taken) * 1000, 4)],
                "times_as_fast_as": {kind: round(ratio(theirs, taken), 2) for kind, theirs in peers.items()},
            }
        )
    return rows


def ratio(theirs: Iterable[float], ours: Iterable[float]) -> float:
    """The median over rounds of `theirs` divided by `ours`."""
    return median(b / a for a, b in zip(ours, theirs, strict=True))


def main(
    llama_bench: Annotated[Path, typer.Option(help="The program llama-bench; llama-quantize must be in the same folder.")],
    shape: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(SHAPES)}.")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    models: Annotated[Path | None, typer.Option(help="Folder that keeps model files between runs.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per shape, case and engine."""
    table = Table("shape", "case", "engine", "ms", "spread", *(f"times llama.cpp {kind}" for kind in KINDS))
    shapes = {}
    for name in shape or ["S", "M", "L"]:
        with tempfile.TemporaryDirectory() as folder:
            rows = figures(measure(name, models or Path(folder), llama_bench, threads, rounds))
        shapes[name] = rows
        for row in rows:
            low, high = row["spread_ms"]
            ratios = [str(row["times_as_fast_as"][kind]) for kind in KINDS]
            table.add_row(name, row["case"], row["engine"], str(row["milliseconds"]), f"{low} to {high}", *ratios)
    Console(width=130).print(table)
    write(json_file, {"machine": machine(), "threads": threads, "rounds": rounds, "shapes": shapes})


if __name__ == "__main__":
    typer.run(main)

"""Runs the protocol of the EFIM paper (arXiv 2505.21889): many users, each filling in one file, round by round.

    python bench/efim_paper.py [--model S --model M] [--users 16] [--rounds 5] [--repeats 2] [--json FILE]

As in the paper's own driver (github.com/gty111/EFIM, async_benchmark_inference_speed.py): files of 2,048 to 4,096
tokens, whose second half is the suffix; the first request has two fourteenths of the file before the gap, and each
round one more; 128 new tokens; a user sends the next round when the last is answered. The files are modules of Python's
standard library, the models random weights in the shapes of `checkpoints.py`, and the requests go through the core's
scheduler. `none` and `psm` lay prompts out alike, and `none` reuses nothing. Nothing is speculated, as in the paper:
random weights repeat themselves more than code does. Every run of a strategy has a core of its own; strategies take
turns, and figures are medians over repeats.
"""

from __future__ import annotations

import random
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from checkpoints import MODEL_HELP, model_called
from figures import JsonFile, machine, write
from rich.console import Console
from rich.table import Table

from inference.checkpoints.checkpoint import find_checkpoint
from inference.checkpoints.hub import ReportProgress
from inference.core.engine_holder import EngineHolder
from inference.core.scheduler import Scheduler
from inference.engine.engine import Engine
from inference.engine.request import Request
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from inference.text.tokenization import TextTokenizer
from midfill.options import takes_options
from midfill.replay.command import STRATEGIES
from midfill.replay.results import percentile
from protocol.messages import CompletionRequest, Prompt, Usage
from protocol.settings import Strategy

FILE_TOKENS = (2048, 4096)
CONTEXT_TOKENS = 5120
STORE_MB = 4096
SLOTS = 16  # as many users' requests share a forward


def files_of_length(tokenizer: TextTokenizer, count: int, tokens: tuple[int, int]) -> tuple[str, ...]:
    """`count` modules of the standard library whose number of tokens is within `tokens`; the same at every call."""
    shortest, longest = tokens
    texts = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if shortest <= tokenizer.count_tokens(text) <= longest:
            texts.append(text)
    return tuple(random.Random(0).sample(texts, count))


@dataclass(frozen=True, slots=True)
class Setup:
    """The size of the load, the repeats, and the size of the core."""

    users: Annotated[int, typer.Option(min=1)] = 16
    rounds: Annotated[int, typer.Option(min=1)] = 5
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 128
    repeats: Annotated[int, typer.Option(min=1)] = 2
    threads: Annotated[int, typer.Option(min=1)] = 2
    dry: Annotated[bool, typer.Option("--dry", help="Everything but the model: counts only, fast.")] = False

    def request(self, strategy: Strategy, user: int, text: str, number: int) -> CompletionRequest:
        """A user's request in its file of a round, counted from 0."""
        half = len(text) // 2
        step = half / (self.rounds + 2)  # a fourteenth of the file, in five rounds
        first, typed = int(step), int(step * (number + 2))
        prompt = Prompt(text[:typed], text[half:], order="spm" if strategy == "spm" else "psm")
        if strategy == "efim":
            prompt = Prompt(text[:first], text[half:], increment=text[first:typed])
        return CompletionRequest(f"user-{user}", prompt, self.max_new_tokens, reuse=strategy != "none")


Answered = tuple[Usage, float]
"""What one request cost, and how many seconds its user waited."""
Run = dict[str, float]
"""The figures of one run of one strategy."""


@contextmanager
def core(model: str, setup: Setup) -> Iterator[Scheduler]:
    """A scheduler with the model in memory and nothing resident."""
    options = EngineOptions(
        model, context_tokens=CONTEXT_TOKENS, store_mb=STORE_MB, slots=SLOTS, threads=setup.threads, speculation=False
    )

    def load(progress: ReportProgress | None = None) -> Engine:
        return load_dry_engine(options) if setup.dry else load_engine(options, progress)

    scheduler = Scheduler(EngineHolder(model, load, lambda _: None))
    _ask(scheduler, CompletionRequest("warm-up", Prompt("import ", ""), 4))
    scheduler.forget("warm-up")
    yield scheduler
    scheduler.close()


def play(scheduler: Scheduler, setup: Setup, files: Sequence[str], strategy: Strategy) -> Run:
    """Run all users at once, each with a file and round after round; `latency_s` is the mean over requests."""
    together = threading.Barrier(len(files) + 1)

    def user(number: int, text: str) -> list[Answered]:
        together.wait()
        return [_ask(scheduler, setup.request(strategy, number, text, turn)) for turn in range(setup.rounds)]

    with ThreadPoolExecutor(len(files)) as pool:
        futures = [pool.submit(user, number, text) for number, text in enumerate(files)]
        together.wait()
        since = time.perf_counter()
        answers = [answer for future in futures for answer in future.result()]
        seconds = time.perf_counter() - since
    usages, latencies = zip(*answers, strict=True)
    return {
        "seconds": seconds,
        "latency_s": sum(latencies) / len(latencies),
        "latency_p95_s": percentile(latencies, 0.95),
        "requests_per_s": len(answers) / seconds,
        "tokens_per_s": sum(usage.generated_tokens for usage in usages) / seconds,
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "recomputed_tokens": sum(usage.recomputed_tokens for usage in usages),
    }


def _ask(scheduler: Scheduler, request: CompletionRequest) -> Answered:
    """Wait for the answer to a request; raises the request's error."""
    answered = Future[Request]()
    since = time.perf_counter()
    scheduler.submit(Request(request, changed=lambda each: answered.set_result(each) if each.has_ended else None))
    completion = answered.result().completion()
    return completion.usage, time.perf_counter() - since


def figures(runs: dict[Strategy, list[Run]]) -> dict[str, Any]:
    """For each strategy its runs and the medians over repeats; for EFIM its ratios to the others, run by run."""
    rows: dict[str, Any] = {
        strategy: {
            "latency_ms": round(1000 * median(run["latency_s"] for run in repeats), 1),
            "latency_p95_ms": round(1000 * median(run["latency_p95_s"] for run in repeats), 1),
            "requests_per_s": round(median(run["requests_per_s"] for run in repeats), 3),
            "tokens_per_s": round(median(run["tokens_per_s"] for run in repeats), 1),
            "recomputed_tokens": repeats[0]["recomputed_tokens"],
            "reuse_share": round(1 - repeats[0]["recomputed_tokens"] / repeats[0]["prompt_tokens"], 4),
            "runs": repeats,
        }
        for strategy, repeats in runs.items()
    }

    def ratio(other: Strategy, what: str) -> float:
        return round(median(a[what] / b[what] for a, b in zip(runs["efim"], runs[other], strict=True)), 3)

    return {
        "strategies": rows,
        "efim_against": {
            other: {"latency": ratio(other, "latency_s"), "throughput": ratio(other, "requests_per_s")}
            for other in runs
            if other != "efim"
        },
    }


def measure(name: str, setup: Setup) -> dict[str, Any]:
    """The figures of one model."""
    with model_called(name) as model:
        files = files_of_length(find_checkpoint(model).tokenizer(), setup.users, FILE_TOKENS)
        runs: dict[Strategy, list[Run]] = {strategy: [] for strategy in STRATEGIES}
        for repeat in range(setup.repeats):
            first = repeat % len(STRATEGIES)
            for strategy in (*STRATEGIES[first:], *STRATEGIES[:first]):
                with core(model, setup) as scheduler:
                    runs[strategy].append(play(scheduler, setup, files, strategy))
    return figures(runs)


@takes_options
def main(
    arguments: Setup, model: Annotated[list[str] | None, typer.Option(help=MODEL_HELP)] = None, json_file: JsonFile = None
) -> None:
    """Measure, and print a line per model and strategy."""
    models = {name: measure(name, arguments) for name in model or ["S", "M"]}
    columns = ("latency_ms", "latency_p95_ms", "requests_per_s", "tokens_per_s", "recomputed_tokens", "reuse_share")
    table = Table("model", "strategy", *(column.replace("_", " ") for column in columns))
    for name, measured in models.items():
        for strategy, row in measured["strategies"].items():
            table.add_row(name, strategy, *(str(row[column]) for column in columns))
    console = Console(width=140)
    console.print(table)
    for name, measured in models.items():
        for other, ratios in measured["efim_against"].items():
            compared = f"{ratios['latency']} of its latency, {ratios['throughput']} times its throughput"
            console.print(f"{name}: efim against {other}: {compared}")
    write(json_file, {"machine": machine(), **asdict(arguments), "models": models})


if __name__ == "__main__":
    typer.run(main)

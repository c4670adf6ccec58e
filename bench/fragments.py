"""Compares two models of the same budget, trained with and without fragment tokenization, on the same tasks.

    python bench/fragments.py WITH WITHOUT --human-eval FOLDER [--held-out FOLDER] [--limit 500]
        [--prefix-tokens 2048] [--suffix-tokens 1024] [--allow-code-execution] [--json FILE] [--plot FILE.svg]

WITH and WITHOUT are model folders. The rows are those of the EFIM paper's comparison (arXiv 2505.21889, section 5), PSM
and EFIM for each model, and a fifth: EFIM with token healing on the model trained without fragments. Cuts are at random
characters. Every row answers the same tasks, so differences between rows are taken task by task, each with a bootstrap
interval. With --allow-code-execution the benchmark's tests run on the models' completions (pass@1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import matplotlib as mpl
import typer
from figures import JsonFile, write
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from lsp_server.prompts.windows import WindowBudget
from midfill_lab.evaluation.runner import (
    Asking,
    Estimate,
    Evaluator,
    Score,
    TaskSet,
    completes_with,
    mean,
    share,
    token_ends_of,
)
from midfill_lab.evaluation.sandbox import Sandbox
from midfill_lab.evaluation.tasks import Format, Split, cut_files, read_benchmark
from protocol.settings import Settings

Measure = Literal["pass@1", "exact match", "first word"]
DEFAULTS = Settings()
_SPLITS: tuple[Split, ...] = ("single-line", "random-span")
MEASURES: tuple[Measure, ...] = ("pass@1", "exact match", "first word")


@dataclass(frozen=True, slots=True)
class Variant:
    """A row: a model and a format of its prompts."""

    fragments: bool
    form: Format
    healing: bool = False

    def __str__(self) -> str:
        trained = "with fragments" if self.fragments else "without"
        return f"{trained}, {self.form.upper()}{' + healing' if self.healing else ''}"


VARIANTS = (
    Variant(fragments=True, form="psm"),
    Variant(fragments=True, form="efim"),
    Variant(fragments=False, form="psm"),
    Variant(fragments=False, form="efim"),
    Variant(fragments=False, form="efim", healing=True),
)
# The paper's claims as differences of rows: EFIM loses nothing with fragments, and much without.
DIFFERENCES = ((1, 0), (3, 2), (4, 2))

Scores = dict[Variant, list[Score]]


def measured(score: Score, measure: Measure) -> bool | None:
    """Whether a case succeeded by this measure; None if the measure does not apply."""
    if measure == "pass@1":
        return None if score.outcome is None else score.outcome == "passed"
    return score.exact if measure == "exact match" else score.first_word


def estimate(scores: Sequence[Score], measure: Measure) -> Estimate | None:
    """The share of successes, with its 95 % interval."""
    return share([hit for score in scores if (hit := measured(score, measure)) is not None])


def difference(scores: Sequence[Score], others: Sequence[Score], measure: Measure) -> Estimate | None:
    """The difference of the shares of success, paired case by case, with its 95 % interval."""
    pairs = [(measured(a, measure), measured(b, measure)) for a, b in zip(scores, others, strict=True)]
    return mean([float(a) - float(b) for a, b in pairs if a is not None and b is not None])


def evaluate(
    folders: dict[bool, Path],
    tasks: Sequence[TaskSet],
    sandbox: Sandbox | None,
    windows: tuple[int, int],
    max_new_tokens: int,
    progress: Callable[[], None],
) -> dict[TaskSet, Scores]:
    """All rows of all sets of tasks; one model is in memory at a time. `windows` are tokens before and after."""
    scores: dict[TaskSet, Scores] = {tasks_of: {} for tasks_of in tasks}
    for variant in VARIANTS:
        healing: Literal["on", "off"] = "on" if variant.healing else "off"
        options = EngineOptions(
            model=str(folders[variant.fragments]), context_tokens=8192, store_budget_bytes=0, slots=1, healing=healing
        )
        engine = load_engine(options)
        budget = WindowBudget(*windows, engine.info.chars_per_token)
        complete = completes_with(engine, Asking(max_new_tokens))
        evaluator = Evaluator(complete, token_ends_of(engine.tokenizer), budget, seed=0, sandbox=sandbox)
        for tasks_of in tasks:
            scores[tasks_of][variant] = evaluator.scores(tasks_of, "character", variant.form, progress)
        engine.close()
    return scores


def read_tasks(human_eval: Path | None, held_out: Path | None, limit: int) -> Iterator[TaskSet]:
    """The sets of tasks, each of at most `limit`."""
    if human_eval is not None:
        found = read_benchmark(human_eval)
        for split in _SPLITS:
            yield TaskSet("human-eval-infilling", split, tuple(found[split])).sample(limit, seed=0)
    if held_out is not None:
        for split in _SPLITS:
            yield TaskSet("held-out", split, tuple(cut_files([held_out], split, limit, 0)))


def table_of(tasks: TaskSet, scores: Scores) -> Table:
    """One row for each variant, then the differences."""
    table = Table(title=f"{tasks.benchmark}, {tasks.split}, n = {len(tasks.tasks)}, %", title_justify="left")
    table.add_column("training, prompt")
    for measure in MEASURES:
        table.add_column(measure, justify="right")
    for variant in VARIANTS:
        table.add_row(str(variant), *(_cell(estimate(scores[variant], measure)) for measure in MEASURES))
    table.add_section()
    for first, second in DIFFERENCES:
        a, b = VARIANTS[first], VARIANTS[second]
        values = (difference(scores[a], scores[b], measure) for measure in MEASURES)
        table.add_row(f"{a} - {b.form.upper()}", *map(_cell, values))
    return table


def plot(results: dict[TaskSet, Scores], file: Path) -> None:
    """Bars with their intervals: a panel for each set of tasks."""
    mpl.rcParams["svg.hashsalt"] = "midfill"  # equal figures give equal files
    figure = Figure(figsize=(4.2 * len(results), 3.6), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for panel, (tasks, scores) in zip(panels, results.items(), strict=True):
        for index, variant in enumerate(VARIANTS):
            for place, measure in enumerate(MEASURES):
                value = estimate(scores[variant], measure)
                if value is not None:
                    low, high = (100 * bound for bound in value.interval)
                    x, height = place + 0.16 * (index - 2), 100 * value.value
                    panel.bar(x, height, 0.15, color=f"C{index}", label=str(variant) if place == 1 else None)
                    panel.errorbar(x, height, [[height - low], [high - height]], color="black", linewidth=0.8)
        panel.set_xticks(range(len(MEASURES)), MEASURES)
        panel.set_title(f"{tasks.benchmark}\n{tasks.split}, n = {len(tasks.tasks)}", fontsize=9)
        panel.set_ylabel("%")
    panels[0].legend(fontsize=7)
    figure.savefig(file, metadata={"Date": None})


def rows_of(results: dict[TaskSet, Scores]) -> Iterator[dict[str, object]]:
    """One object for each row and measure, shares from 0 to 1."""
    for tasks, scores in results.items():
        for variant in VARIANTS:
            for measure in MEASURES:
                if (value := estimate(scores[variant], measure)) is not None:
                    names = {"benchmark": tasks.benchmark, "split": tasks.split, "measure": measure}
                    yield {**names, **asdict(variant), **asdict(value)}


def _cell(value: Estimate | None) -> str:
    if value is None:
        return "-"
    low, high = value.interval
    return f"{value.value * 100:.1f} ({low * 100:.1f} to {high * 100:.1f})"


def main(
    with_fragments: Annotated[Path, typer.Argument(metavar="WITH", help="The model trained with fragments.")],
    without: Annotated[Path, typer.Argument(metavar="WITHOUT", help="The same model trained without fragments.")],
    human_eval: Annotated[Path | None, typer.Option(help="Folder of HumanEval-Infilling.")] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="Folder of Python files that neither model was trained on.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of tasks per set.")] = 500,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Token limit for a completion.")] = 192,
    prefix_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of context before the cursor.")
    ] = DEFAULTS.prefix_tokens,
    suffix_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of context after the cursor.")
    ] = DEFAULTS.suffix_tokens,
    allow_code_execution: Annotated[
        bool, typer.Option("--allow-code-execution", help="Run the benchmark's tests on the models' code.")
    ] = False,
    json_file: JsonFile = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="SVG or PNG file for the figure.")] = None,
) -> None:
    """Compare a model trained with fragments with one trained without, in PSM, in EFIM, and with healing."""
    console = Console()
    tasks = list(read_tasks(human_eval, held_out, limit))
    if not tasks:
        raise typer.BadParameter("no tasks: give --human-eval or --held-out")
    sandbox = Sandbox() if allow_code_execution else None
    if sandbox is not None:
        console.print(f"The benchmark runs generated code on this machine. {sandbox.description}.")
    with Progress(console=console) as progress:
        cases = sum(len(tasks_of.tasks) for tasks_of in tasks)
        bar = progress.add_task("cases", total=cases * len(VARIANTS))
        folders = {True: with_fragments, False: without}
        windows = prefix_tokens, suffix_tokens
        results = evaluate(folders, tasks, sandbox, windows, max_new_tokens, lambda: progress.advance(bar))
    for tasks_of, scores in results.items():
        console.print(table_of(tasks_of, scores))
    console.print("Brackets hold 95 % intervals. Differences are computed task by task.")
    write(json_file, list(rows_of(results)))
    if plot_file is not None:
        plot(results, plot_file)


if __name__ == "__main__":
    typer.run(main)

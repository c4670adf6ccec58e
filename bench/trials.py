"""Trains a checkpoint under several settings, a short run each on equal tokens, and prints a table of held-out losses.

    python bench/trials.py CORPUS --from BASE --output TRIALS --tokens 100000 \
        --vary lr=5e-5,1e-4,2e-4 --vary lora=off,on --vary window=512,1024 -- --middles-only --decay 0.5

Each `--vary NAME=VALUE,...` is an option of `midfill train`; all combinations are run. `on` and `off` stand for options
without a value. What follows `--` goes to every run. A trial that is finished is not run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

BATCH_TOKENS = 4096
KINDS = ("whole", "fragments")
MEASURES = ("efim", "psm", "spm", "text")


def parse(vary: list[str]) -> list[tuple[str, list[str]]]:
    """The names and values of `--vary`."""
    axes = [(name, values.split(",")) for name, _, values in (one.partition("=") for one in vary)]
    for name, values in axes:
        if not name or not all(values):
            raise typer.BadParameter(f"--vary {name}: it is of the form NAME=VALUE,VALUE,...")
    return axes


def arguments(setting: dict[str, str]) -> list[str]:
    """A setting as options of `midfill train`."""
    given: list[str] = []
    for name, value in setting.items():
        if value != "off":
            given += [f"--{name}"] if value == "on" else [f"--{name}", value]
    return given


def run(corpus: Path, start: str, folder: Path, tokens: int, setting: dict[str, str], common: list[str]) -> None:
    """Train one setting, unless its model is there."""
    if (folder / "model" / "config.json").is_file():
        return
    window = int(setting.get("window", option(common, "--window", "512")))
    batch = max(1, BATCH_TOKENS // window)
    command = [sys.executable, "-m", "midfill", "train", str(corpus), "--from", start, "--output", str(folder)]
    command += ["--batch-size", str(batch), "--steps", str(max(1, tokens // (batch * window)))]
    subprocess.run([*command, *arguments(setting), *common], check=True)


def option(given: list[str], name: str, default: str) -> str:
    """The value of an option among arguments."""
    return given[given.index(name) + 1] if name in given else default


def row(folder: Path, setting: dict[str, str]) -> list[str]:
    """Setting, speed, and losses after the trial as printed; a change since before it in parentheses."""
    records: list[dict[str, Any]] = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    losses = [{one["layout"]: one for one in record["held_out"]} for record in records if "held_out" in record]
    progress = [record["progress"] for record in records if "progress" in record][-1]
    first, last = losses[0], losses[-1]
    cells = [f"{progress['tokens'] / progress['seconds']:.0f}"]
    cells += [
        f"{last[name][kind]:.3f} ({last[name][kind] - first[name][kind]:+.3f})" for name in MEASURES for kind in KINDS
    ]
    cells += [f"{last['efim']['ends']:.0%} / {last['efim']['early']:.0%}"]
    return [*setting.values(), *cells]


def main(
    corpus: Annotated[Path, typer.Argument(help="A corpus of `python -m midfill_lab.recipe corpus`, or a folder.")],
    start: Annotated[str, typer.Option("--from", help="The checkpoint to start from.")],
    output: Annotated[Path, typer.Option(help="Folder for the runs.")],
    vary: Annotated[list[str], typer.Option(help="NAME=VALUE,VALUE,... of an option of midfill train; repeatable.")],
    tokens: Annotated[int, typer.Option(help="Tokens to train each setting on.")] = 100_000,
    common: Annotated[list[str] | None, typer.Argument(help="Options for every run, after --.")] = None,
) -> None:
    """Run all combinations and print the table."""
    axes = parse(vary)
    names = [name for name, _ in axes]
    header = (
        "tok/s",
        *(f"{name.upper()} {kind}" for name in MEASURES for kind in KINDS),
        "ends / early",
    )
    table = Table(*names, *header, title="held-out nats per byte after the trial (change)")
    for values in product(*(values for _, values in axes)):
        setting = dict(zip(names, values, strict=True))
        folder = output / "_".join(f"{name}={value}" for name, value in setting.items())
        run(corpus, start, folder, tokens, setting, common or [])
        table.add_row(*row(folder, setting))
        Console(width=220).print(table)


if __name__ == "__main__":
    typer.run(main)

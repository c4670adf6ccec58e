"""Plots the losses of training runs over the tokens that they have seen.

    python bench/learning_curves.py RUN [RUN ...] --plot FILE.svg [--label TEXT ...]

RUN is the output folder of `midfill train`. A point is the mean over 20 steps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import numpy as np
import typer
from matplotlib.figure import Figure

STEPS_PER_POINT = 20


def curve(run: Path) -> tuple[list[float], list[float]]:
    """Millions of tokens, and nats per token; of a step repeated after a stop, the last result counts."""
    losses: dict[int, float] = {}
    for line in (run / "log.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "loss" in entry:
            losses[entry["progress"]["tokens"]] = entry["loss"]
    points = np.array(sorted(losses.items()))
    points = points[: len(points) // STEPS_PER_POINT * STEPS_PER_POINT].reshape(-1, STEPS_PER_POINT, 2).mean(axis=1)
    return (points[:, 0] / 1e6).tolist(), points[:, 1].tolist()


def main(
    runs: Annotated[list[Path], typer.Argument(exists=True, file_okay=False)],
    plot: Annotated[Path, typer.Option(help="SVG or PNG file for the figure.")],
    label: Annotated[list[str] | None, typer.Option(help="Label of each run. Default: its folder's name.")] = None,
) -> None:
    """Draw the curves."""
    labels = label or [run.resolve().name for run in runs]
    if len(labels) != len(runs):
        raise typer.BadParameter(f"{len(labels)} labels for {len(runs)} runs")
    mpl.rcParams["svg.hashsalt"] = "midfill"  # equal figures give equal files
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    panel = figure.subplots()
    for run, name in zip(runs, labels, strict=True):
        panel.plot(*curve(run), label=name, linewidth=1)
    panel.set_xlabel("training tokens, millions")
    panel.set_ylabel("loss, nats per token")
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(plot, metadata={"Date": None})


if __name__ == "__main__":
    typer.run(main)

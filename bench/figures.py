"""What the benches share about their figures: percentiles, the machine's description, and the option `--json`."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from midfill.replay.results import percentile

JsonFile = Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")]
RANKS = (50, 95, 99)


def percentiles(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """p50, p95 and p99, rounded."""
    return {f"p{rank}": round(percentile(values, rank / 100), digits) for rank in RANKS}


def machine() -> str:
    """A description of this machine, as far as Python knows it."""
    return platform.processor() or platform.machine()


def write(file: Path | None, figures: object) -> None:
    """Write the figures as JSON, if there is a file for them."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")

"""What the benches share about their figures: the machine's description, and the option `--json`."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Annotated

import typer

JsonFile = Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")]


def machine() -> str:
    """A description of this machine, as far as Python knows it."""
    return platform.processor() or platform.machine()


def write(file: Path | None, figures: object) -> None:
    """Write the figures as JSON, if there is a file for them."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")

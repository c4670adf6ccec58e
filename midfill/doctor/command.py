"""The command `midfill doctor`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from midfill.installation import ENGINE, missing
from protocol.errors import BadSettings
from protocol.settings import Settings

if TYPE_CHECKING:
    from inference.loading.gpus import Gpu
    from midfill.doctor.findings import Section


def doctor_command(
    settings: Settings,
    refused: Sequence[BadSettings],
    file: Annotated[Path | None, typer.Argument(help="Also say whether this file gets suggestions.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Check the installation, the model and the cores, and list every problem with its remedy.

    Exits with status 1 if there is a problem.
    """
    from midfill.doctor import findings

    sections = asyncio.run(examine(settings, refused, file))
    result = findings.as_json(sections)
    if as_json:
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print(Console(), sections, result["problems"])
    if not result["ok"]:
        raise typer.Exit(1)


async def examine(settings: Settings, refused: Sequence[BadSettings] = (), file: Path | None = None) -> list[Section]:
    """All findings; `refused` holds bad environment variables. Takes about a second, and does not import torch."""
    from inference.loading.gpus import find_gpus
    from midfill.doctor.core import cores
    from midfill.doctor.folders import folders
    from midfill.doctor.hardware import hardware, installed
    from midfill.doctor.settings import settings_in_force
    from midfill.doctor.suggestions import suggestions

    gpus = find_gpus()
    return [
        *([await suggestions(file, settings)] if file is not None else []),
        installed(settings),
        hardware(gpus),
        *(() if missing(ENGINE) else await _engine(settings, gpus)),
        await cores(settings),
        folders(),
        settings_in_force(settings, os.environ, refused),
    ]


async def _engine(settings: Settings, gpus: tuple[Gpu, ...]) -> Sequence[Section]:
    """The configured engine or model, and the models on this machine."""
    from midfill.doctor.engine import engine
    from midfill.doctor.model import model
    from midfill.doctor.models import models

    return await engine(settings) or model(settings, gpus), models(settings, gpus)


def _print(console: Console, sections: Sequence[Section], problems: Sequence[str]) -> None:
    for section in sections:
        console.print(Text(section.title, style="bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bright_black", no_wrap=True, min_width=16)
        table.add_column(overflow="fold")
        for name, value in section.facts:
            table.add_row(f"  {name}", Text(value))
        console.print(table)
        for problem in section.problems:
            console.print(Text(f"  ✗ {problem}", style="bold red"), soft_wrap=True)
    console.print()
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        console.print(Text(f"{count}, marked with ✗", style="bold red"))
    else:
        console.print(Text("✓ no problems found", style="bold green"))

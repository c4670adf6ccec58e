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

from midfill.console import open_console
from protocol.errors import BadSettings
from protocol.installation import ENGINE, missing
from protocol.settings import Settings

if TYPE_CHECKING:
    from inference.loading.options import Gpu
    from midfill.doctor.findings import Section


def doctor_command(
    settings: Settings,
    refused: Sequence[BadSettings],
    file: Annotated[Path | None, typer.Argument(help="Also say whether this file gets suggestions.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object, with all facts.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show packages, folders, and the settings that are at their defaults.")
    ] = False,
) -> None:
    """Check the installation, the model and the cores, and list every problem with its remedy.

    The problems stand at the end, behind what was found. Exits with status 1 if there is a problem.
    """
    from midfill.doctor import findings

    sections = asyncio.run(examine(settings, refused, file))
    result = findings.as_json(sections)
    if as_json:
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print(open_console(), sections, everything=everything)
    if not result["ok"]:
        raise typer.Exit(1)


async def examine(settings: Settings, refused: Sequence[BadSettings] = (), file: Path | None = None) -> list[Section]:
    """All findings; `refused` holds bad environment variables. Takes about a second, and does not import torch."""
    from inference.loading.options import find_gpus
    from midfill.doctor.checks import cores, suggestions
    from midfill.doctor.findings import folders, hardware, installed, settings_in_force

    gpus = find_gpus()
    return [
        *([await suggestions(file, settings)] if file is not None else []),
        installed(settings),
        hardware(gpus),
        *([] if missing(ENGINE) else [await _engine(settings, gpus)]),
        await cores(settings),
        folders(settings),
        settings_in_force(settings, os.environ, refused),
    ]


async def _engine(settings: Settings, gpus: tuple[Gpu, ...]) -> Section:
    """The configured engine or model."""
    from midfill.doctor.checks import engine, loaded_on
    from midfill.doctor.models import model

    return await engine(settings) or model(settings, gpus, await loaded_on(settings))


def _print(console: Console, sections: Sequence[Section], *, everything: bool) -> None:
    for section in sections:
        facts = (*section.facts, *section.minor) if everything else section.facts
        if not facts:
            continue
        console.print(Text(section.title, style="bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bright_black", no_wrap=True, min_width=16)
        table.add_column(overflow="fold")
        for name, value in facts:
            table.add_row(f"  {name}", Text(value))
        console.print(table)
        console.print()
    if not everything:
        console.print("--all also shows packages, folders, and the settings that are at their defaults.")
    problems = [(section.title, problem) for section in sections for problem in section.problems]
    for title, problem in problems:
        console.print(Text.assemble((f"✗ {title}: ", "bold red"), problem), soft_wrap=True)
    if not problems:
        console.print(Text("✓ no problems found", style="bold green"))

"""The command `midfill replay`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from midfill.output_files import check_writable
from midfill.replay.options import ReplayOptions
from midfill.replay.trace import Trace, read_trace
from midfill.takes_options import takes_options
from protocol.errors import BadInput
from protocol.settings import Settings

if TYPE_CHECKING:
    from midfill.replay.results import ReplayResult


@takes_options
def replay_command(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(help="A recorded editing session (.json or .json.gz).")],
    arguments: ReplayOptions,
) -> None:
    """Count what each keystroke of a recorded session costs.

    By default it runs against a real language server over stdio and a real core.
    """
    from midfill.replay.report import report
    from midfill.replay.results import summary

    _ = arguments.mode  # refuses options that exclude each other
    check_writable(arguments.json_file)
    session = read_trace(trace)
    if arguments.start >= len(session.transactions):
        raise BadInput(f"--start {arguments.start}: {trace} has {len(session.transactions)} transactions")
    result = _play(session, replace(settings, max_tokens=arguments.max_new_tokens), arguments)
    text = json.dumps(summary(result), indent=2)
    if arguments.json_file == Path("-"):
        Console(stderr=True).print(report(result))
        typer.echo(text)
        return
    Console().print(report(result))
    if arguments.json_file is not None:
        arguments.json_file.write_text(text + "\n", encoding="utf-8")
        typer.echo(f"wrote {arguments.json_file}")


def _play(session: Trace, settings: Settings, options: ReplayOptions) -> ReplayResult:
    """Run the replay, with a bar per strategy on stderr if that is a terminal."""
    from midfill.replay.player import replay

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:5}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    steps = len(session.transactions[options.start :][: options.limit])
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = dict[str, TaskID]((name, progress.add_task(name, total=steps)) for name in options.layouts)
        replayed = replay(session, settings, options, lambda name, done: progress.update(bars[name], completed=done))
        return asyncio.run(replayed)

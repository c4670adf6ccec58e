"""The command `midfill replay`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
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

    _ = arguments.mode  # refuses options that exclude each other
    json_file, html_file = arguments.json_file, arguments.html_file
    for path in (json_file, html_file):
        check_writable(path)
    session = read_trace(trace)
    if arguments.start >= len(session.transactions):
        raise BadInput(f"--start {arguments.start}: {trace} has {len(session.transactions)} transactions")
    result = _play(session, replace(settings, max_tokens=arguments.max_new_tokens), arguments)
    console = Console(stderr=json_file == Path("-"))
    console.print(report(result))
    for path in _write(result, json_file, html_file):
        console.print(f"wrote {path}")


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


def _write(result: ReplayResult, json_file: Path | None, html_file: Path | None) -> Iterator[Path]:
    """Write the requested files, and yield their paths."""
    from midfill.replay.html_report import write_html_report
    from midfill.replay.results import summary

    text = json.dumps(summary(result), indent=2)
    if json_file == Path("-"):
        typer.echo(text)
    elif json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
        yield json_file
    if html_file is not None:
        write_html_report(result, html_file)
        yield html_file

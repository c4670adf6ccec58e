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
from midfill.replay.trace import Trace, read_trace
from protocol.errors import BadInput
from protocol.settings import Settings, Strategy

if TYPE_CHECKING:
    from midfill.replay.player import ReplayOptions
    from midfill.replay.results import ReplayResult

STRATEGIES: tuple[Strategy, ...] = ("none", "psm", "spm", "efim")


def replay_command(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(help="A recorded editing session (.json or .json.gz).")],
    dry: Annotated[bool, typer.Option("--dry", help="Count tokens without running the model: fast.")] = False,
    engine: Annotated[bool, typer.Option("--engine", help="Run the model in this process, without a server.")] = False,
    strategies: Annotated[str, typer.Option(help="Prompt layouts to compare, comma separated.")] = ",".join(STRATEGIES),
    start: Annotated[int, typer.Option(min=0, help="First transaction to play.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of transactions to play.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Token limit for a suggestion.")] = 16,
    moves: Annotated[
        bool,
        typer.Option("--moves", help="Announce cursor moves before edits in other places, as editors do (efim only)."),
    ] = False,
    moves_for_all: Annotated[
        bool, typer.Option("--moves-for-all", help="Announce cursor moves to every layout.")
    ] = False,
    language: Annotated[str, typer.Option(help="The document's language id.")] = "plaintext",
    verify: Annotated[
        int, typer.Option(min=0, help="Number of requests to repeat without reuse; a different text is an error.")
    ] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the summary as JSON to this file; - for stdout.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a self-contained HTML page to this file.")
    ] = None,
) -> None:
    """Count what each keystroke of a recorded session costs.

    By default it runs against a real language server over stdio and a real core.
    """
    from midfill.replay.player import ReplayOptions
    from midfill.replay.report import report

    if dry and (engine or verify):
        raise BadInput(f"--dry and {'--engine' if engine else '--verify'} exclude each other: the dry run has no model")
    for path in (json_file, html_file):
        check_writable(path)
    session = read_trace(trace)
    if start >= len(session.transactions):
        raise BadInput(f"--start {start}: {trace} has {len(session.transactions)} transactions")
    options = ReplayOptions(
        mode="dry" if dry else "engine" if engine else "stdio",
        strategies=_strategies(strategies),
        start=start,
        limit=limit,
        moves=moves,
        moves_for_all=moves_for_all,
        language_id=language,
        verify=verify,
    )
    result = _play(session, replace(settings, max_tokens=max_new_tokens), options)
    console = Console(stderr=json_file == Path("-"))
    console.print(report(result))
    for path in _write(result, json_file, html_file):
        console.print(f"wrote {path}")


def _strategies(names: str) -> tuple[Strategy, ...]:
    chosen = tuple(name.strip() for name in names.split(","))
    for name in chosen:
        if name not in STRATEGIES:
            raise BadInput(f"--strategies {names}: unknown {name!r}, choose from {', '.join(STRATEGIES)}")
    return tuple(name for name in STRATEGIES if name in chosen)


def _play(session: Trace, settings: Settings, options: ReplayOptions) -> ReplayResult:
    """Run the replay, with a bar per strategy on stderr if that is a terminal."""
    from midfill.replay.player import replay

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:5}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    steps = len(session.transactions[options.start :][: options.limit])
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = dict[str, TaskID]((name, progress.add_task(name, total=steps)) for name in options.strategies)
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

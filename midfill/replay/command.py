"""The command `midfill replay`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from midfill.replay.trace import Trace, read_trace
from protocol.errors import BadInput
from protocol.settings import Settings, Strategy

STRATEGIES: tuple[Strategy, ...] = ("none", "psm", "spm", "efim")


def replay_command(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(help="A recorded editing session (.json or .json.gz).")],
    dry: Annotated[bool, typer.Option("--dry", help="Everything but the model: counts only, fast.")] = False,
    engine: Annotated[bool, typer.Option("--engine", help="The model in this process, no server.")] = False,
    strategies: Annotated[str, typer.Option(help="Which to compare, separated by commas.")] = ",".join(STRATEGIES),
    start: Annotated[int, typer.Option(min=0, help="The first transaction to play.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="How many transactions to play.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest suggestion, in tokens.")] = 16,
    moves: Annotated[
        bool, typer.Option("--moves", help="Tell of the cursor move before an edit that happens elsewhere (efim).")
    ] = False,
    moves_for_all: Annotated[bool, typer.Option("--moves-for-all", help="Tell every strategy of them.")] = False,
    language: Annotated[str, typer.Option(help="The document's language id.")] = "plaintext",
    verify: Annotated[
        int, typer.Option(min=0, help="Compute so many requests again without reuse; another text is an error.")
    ] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the summary here; - for stdout.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a self-contained page here.")] = None,
) -> None:
    """Count what each keystroke of a recorded session costs.

    By default it runs against a real language server over stdio and a real core.
    """
    from midfill.replay.html_report import write_html_report
    from midfill.replay.player import ReplayOptions, replay
    from midfill.replay.report import report
    from midfill.replay.results import summary

    if dry and engine:
        raise BadInput("--dry and --engine exclude each other: the dry run has no model")
    if dry and verify:
        raise BadInput("--dry and --verify exclude each other: the dry run has no model")
    for path in (json_file, html_file):
        _check_writable(path)
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
    console = Console(stderr=json_file == Path("-"))
    settings = replace(settings, max_tokens=max_new_tokens)
    with _progress(session, options.strategies, start, limit) as progress:
        tasks = {task.description: task.id for task in progress.tasks}
        result = asyncio.run(
            replay(session, settings, options, lambda name, done: progress.update(tasks[name], completed=done))
        )
    console.print(report(result))
    if json_file is not None:
        text = json.dumps(summary(result), indent=2)
        if json_file == Path("-"):
            typer.echo(text)
        else:
            json_file.write_text(text + "\n", encoding="utf-8")
            console.print(f"wrote {json_file}")
    if html_file is not None:
        write_html_report(result, html_file)
        console.print(f"wrote {html_file}")


def _check_writable(path: Path | None) -> None:
    """Before the replay rather than after it: BadInput if nothing can be written there."""
    if path is None or path == Path("-"):
        return
    try:
        path.open("a").close()
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error


def _strategies(names: str) -> tuple[Strategy, ...]:
    chosen = tuple(name.strip() for name in names.split(","))
    for name in chosen:
        if name not in STRATEGIES:
            raise BadInput(f"--strategies {names}: {name!r} is none of {', '.join(STRATEGIES)}")
    return tuple(name for name in STRATEGIES if name in chosen)


def _progress(trace: Trace, strategies: tuple[Strategy, ...], start: int, limit: int | None) -> Progress:
    """A bar per strategy, on stderr and only where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:5}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    total = len(trace.transactions) - start
    for strategy in strategies:
        progress.add_task(strategy, total=total if limit is None else min(limit, total))
    return progress

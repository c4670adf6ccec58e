"""The command `midfill replay` and its options."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from midfill.console import open_console
from midfill.options import check_writable, chosen, takes_options
from midfill.replay.trace import Trace, read_trace
from protocol.errors import BadInput
from protocol.settings import Settings, Strategy

if TYPE_CHECKING:
    from midfill.replay.results import ReplayResult


Mode = Literal["stdio", "engine", "dry"]

STRATEGIES: tuple[Strategy, ...] = ("none", "psm", "spm", "efim")


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options, as the command line spells them."""

    dry: Annotated[bool, typer.Option("--dry", help="Count tokens without running the model: fast.")] = False
    engine: Annotated[bool, typer.Option("--engine", help="Run the model in this process, without a server.")] = False
    strategies: Annotated[str, typer.Option(help="Prompt layouts to compare, comma separated.")] = ",".join(STRATEGIES)
    start: Annotated[int, typer.Option(min=0, help="First transaction to play.")] = 0
    limit: Annotated[int | None, typer.Option(min=1, help="Number of transactions to play.")] = None
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Token limit for a suggestion.")] = 16
    moves: Annotated[
        bool, typer.Option("--moves", help="Announce cursor moves before edits in other places, as editors do (efim only).")
    ] = False
    moves_for_all: Annotated[bool, typer.Option("--moves-for-all", help="Announce cursor moves to every layout.")] = False
    language: Annotated[str, typer.Option(help="The document's language id.")] = "plaintext"
    verify: Annotated[
        int, typer.Option(min=0, help="Number of requests to repeat without reuse; a different text is an error.")
    ] = 0
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the summary as JSON to this file; - for stdout.")] = None

    @property
    def mode(self) -> Mode:
        """The target that answers the requests; BadInput if the options ask for two."""
        if self.dry and (self.engine or self.verify):
            other = "--engine" if self.engine else "--verify"
            raise BadInput(f"--dry and {other} exclude each other: the dry run has no model")
        return "dry" if self.dry else "engine" if self.engine else "stdio"

    @property
    def layouts(self) -> tuple[Strategy, ...]:
        """The strategies to compare; BadInput for an unknown one."""
        return chosen("--strategies", self.strategies, STRATEGIES)


@takes_options
def replay_command(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(help="A recorded editing session (.json or .json.gz).")],
    arguments: ReplayOptions,
) -> None:
    """Count what each keystroke of a recorded session costs.

    By default it runs against a real language server over stdio and a real core.
    """
    from midfill.replay.results import report, summary

    _ = arguments.mode  # refuses options that exclude each other
    check_writable(arguments.json_file)
    session = read_trace(trace)
    if arguments.start >= len(session.transactions):
        raise BadInput(f"--start {arguments.start}: {trace} has {len(session.transactions)} transactions")
    result = _play(session, replace(settings, max_tokens=arguments.max_new_tokens), arguments)
    text = json.dumps(summary(result), indent=2)
    if arguments.json_file == Path("-"):
        open_console(stderr=True).print(report(result))
        typer.echo(text)
        return
    open_console().print(report(result))
    if arguments.json_file is not None:
        arguments.json_file.write_text(text + "\n", encoding="utf-8")
        typer.echo(f"wrote {arguments.json_file}")


def _play(session: Trace, settings: Settings, options: ReplayOptions) -> ReplayResult:
    """Run the replay, with a bar per strategy on stderr if that is a terminal."""
    from midfill.replay.player import replay

    console = open_console(stderr=True)
    columns = (TextColumn("{task.description:5}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    steps = len(session.transactions[options.start :][: options.limit])
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = dict[str, TaskID]((name, progress.add_task(name, total=steps)) for name in options.layouts)
        replayed = replay(session, settings, options, lambda name, done: progress.update(bars[name], completed=done))
        return asyncio.run(replayed)

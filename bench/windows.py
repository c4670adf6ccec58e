"""One user who types in several editor windows by turns: what the processes hold in memory, and do at rest.

    python bench/windows.py SESSION.json.gz [--windows 5] [--minutes 30] [--model bundled] [--json FILE]

Each window is a language server over stdio with a part of the session; all share one core of this bench. The user types
at the recorded pace, with pauses of at most --longest-pause seconds, for --turn seconds in a window, and does not wait
for suggestions. After that all processes rest: first for --rest seconds, in which the core saves, then as long again,
whose CPU time is counted. A prefill ahead of the keys counts as used if a key followed it before the next one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from figures import JsonFile, machine, percentiles, write
from playing import MOVE_S, START_SECONDS, parts_of
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from midfill.headless.lsp_session import LspSession, PendingAnswer, open_session
from midfill.headless.private_core import private_core_environment, processes_in
from midfill.replay.trace import Step, Trace, play, read_trace
from protocol.errors import Cancelled, MidfillError


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the user types in all, in a window at a time, and rests."""

    seconds: float
    turn_s: float
    rest_s: float
    longest_pause: float


@dataclass
class Window:
    """A language server with one document, and what its keys took."""

    name: str
    session: LspSession
    steps: Iterator[Step]
    keys: int = 0
    milliseconds: list[float] = field(default_factory=list)  # of answered requests
    heats: list[str] = field(default_factory=list)
    ahead: int = 0
    unused_ahead: int = 0
    ahead_tokens: int = 0
    failures: list[str] = field(default_factory=list)
    _last: float | None = None
    _pending: asyncio.Task[None] | None = None
    _request: PendingAnswer | None = None

    @property
    def uri(self) -> str:
        return f"file:///bench/{self.name}"

    async def type(self, until: float, longest_pause: float) -> None:
        """Type key by key until this `time.monotonic()` or the end of the part."""
        while time.monotonic() < until and (step := next(self.steps, None)) is not None:
            pause = 0.0 if self._last is None or step.time is None else step.time - self._last
            await asyncio.sleep(min(pause, longest_pause))
            self._last = step.time
            if step.moved_to is not None:
                self.session.move_cursor(self.uri, step.moved_to)
                await asyncio.sleep(MOVE_S)
            if self._request is not None:
                self._request.cancel()
            self._count_ahead()
            self.session.change(self.uri, step.edits)
            self.keys += 1
            self._request = self.session.begin_suggest(self.uri, step.cursor)
            self._pending = asyncio.create_task(self._take(self._request, self._pending))
        if self._pending is not None:
            await self._pending

    async def _take(self, request: PendingAnswer, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        try:
            answer = await request.wait()
        except Cancelled:
            return
        except MidfillError as error:
            self.failures.append(str(error))
            return
        self.milliseconds.append(answer.milliseconds)
        if answer.cost is not None:
            self.heats.append(answer.cost.heat)

    def _count_ahead(self) -> None:
        reports = self.session.ahead
        self.ahead += len(reports)
        self.unused_ahead += max(0, len(reports) - 1)
        self.ahead_tokens += sum(report.usage.recomputed_tokens for report in reports)
        reports.clear()


@dataclass(slots=True)
class Memory:
    """The resident bytes of one process, as they were."""

    process: psutil.Process
    name: str
    samples: list[int] = field(default_factory=list)
    cpu_at_rest: float = 0.0  # share of one CPU core

    def sample(self) -> None:
        self.samples.append(self.process.memory_info().rss)

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


def processes_of(environment: dict[str, str]) -> list[Memory]:
    """The language servers and the core of this bench, with the children of their own."""
    found = []
    for process in processes_in(environment):
        with suppress(psutil.Error):  # it has gone
            arguments = process.cmdline()
            kind = next((word for word in ("lsp", "core") if word in arguments), arguments[-1])
            found.append(Memory(process, {"lsp": "language server"}.get(kind, kind)))
    return found


async def run(parts: Sequence[Trace], model: str, language: str, plan: Plan) -> tuple[list[Window], list[Memory]]:
    """Type in all windows by turns, then rest."""
    async with AsyncExitStack() as stack:
        environment = stack.enter_context(private_core_environment())
        windows = []
        for number, part in enumerate(parts):
            command = [sys.executable, "-m", "midfill", "lsp"]
            session = await stack.enter_async_context(
                open_session(command, settings={"model": model}, environment=environment)
            )
            windows.append(Window(f"window-{number}", session, play(part)))
            session.open(windows[-1].uri, language, part.start)
            await session.wait_until_ready(START_SECONDS)
        memories = processes_of(environment)
        progress = stack.enter_context(Progress(console=Console(stderr=True)))
        bar = progress.add_task("typing", total=plan.seconds)
        started = time.monotonic()
        turn = 0
        while (passed := time.monotonic() - started) < plan.seconds:
            end = started + min(passed + plan.turn_s, plan.seconds)
            await windows[turn % len(windows)].type(end, plan.longest_pause)
            turn += 1
            for memory in memories:
                memory.sample()
            progress.update(bar, completed=passed, description=f"typing, {sum(each.keys for each in windows)} keys")
        await asyncio.sleep(plan.rest_s)
        before = [memory.cpu_s() for memory in memories]
        await asyncio.sleep(plan.rest_s)
        for memory, seconds in zip(memories, before, strict=True):
            memory.cpu_at_rest = (memory.cpu_s() - seconds) / plan.rest_s
            memory.sample()
        return windows, memories


def figures(windows: Sequence[Window], memories: Sequence[Memory]) -> dict[str, Any]:
    """What was typed and answered, and each process's memory and CPU."""
    heats = [heat for window in windows for heat in window.heats]
    return {
        "keys": sum(window.keys for window in windows),
        "answered": sum(len(window.milliseconds) for window in windows),
        "failures": [failure for window in windows for failure in window.failures],
        "time_to_suggestion_ms": percentiles([each for window in windows for each in window.milliseconds]),
        "hot_share": round(heats.count("hot") / len(heats), 4),
        "ahead": sum(window.ahead for window in windows),
        "ahead_unused": sum(window.unused_ahead for window in windows),
        "ahead_tokens": sum(window.ahead_tokens for window in windows),
        "processes": [
            {
                "name": memory.name,
                "first_mb": memory.samples[0] // 10**6,
                "most_mb": max(memory.samples) // 10**6,
                "last_mb": memory.samples[-1] // 10**6,
                "cpu_at_rest": round(memory.cpu_at_rest, 4),
            }
            for memory in memories
        ],
    }


def main(
    trace: Annotated[Path, typer.Argument(help="A recorded session, with times.", exists=True, dir_okay=False)],
    language: Annotated[str, typer.Option(help="The document's language id.")] = "rust",
    windows: Annotated[int, typer.Option(min=1, help="Number of windows.")] = 5,
    minutes: Annotated[float, typer.Option(min=0.05, help="Time of typing.")] = 30,
    turn: Annotated[float, typer.Option(min=1, help="Seconds in a window at a time.")] = 60,
    rest: Annotated[
        float, typer.Option(min=1, help="Seconds of rest before the CPU time is counted, and counted.")
    ] = 40,
    longest_pause: Annotated[float, typer.Option(min=0, help="Longest pause of the recording, in seconds.")] = 10,
    model: Annotated[str, typer.Option(help="The setting `model`.")] = "bundled",
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per figure and process."""
    plan = Plan(60 * minutes, turn, rest, longest_pause)
    result = figures(*asyncio.run(run(list(parts_of(read_trace(trace), windows)), model, language, plan)))
    console = Console(width=120)
    for name, value in result.items():
        if name != "processes":
            console.print(f"{name.replace('_', ' ')}: {value}", highlight=False)
    table = Table("process", "MB, first", "most", "last", "CPU at rest")
    for row in result["processes"]:
        cells = [str(row[key]) for key in ("first_mb", "most_mb", "last_mb")]
        table.add_row(row["name"], *cells, f"{row['cpu_at_rest']:.2%}")
    console.print(table)
    given = {"machine": machine(), "trace": trace.name, "model": model, "windows": windows, "minutes": minutes}
    write(json_file, {**given, **result})


if __name__ == "__main__":
    typer.run(main)

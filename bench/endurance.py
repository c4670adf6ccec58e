"""Types a working day's keys in several windows of one user, and shows whether processes grow.

    python bench/endurance.py FOLDER [--windows 5] [--keys 19200] [--model tiny] [--rest 30] [--json FILE]

Every window is a language server with files of FOLDER open. A typist goes to a line's end, in a window after the other,
types a line of another file key by key with the suggestion of each, and undoes it later, so that documents keep their
size. Keys follow one another without pauses: 19,200 are eight hours at 40 a minute. The memory, open files and threads
of the core and of all language servers are read at each tenth of the keys, and the CPU of a rest at the end. The
command fails if the second half needs 5 % more memory, or another file or thread, than the end of the first. Two things
grow up to a bound: the core's caches of tokens, to MAX_CACHED_BYTES each, and the threads of a language server, to THREADS.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer
from clicks import cpu_seconds
from figures import JsonFile, machine, write
from rich.console import Console

from lsp_server.documents.documents import Edit, Position
from lsp_server.launch import WORKERS
from midfill.headless.environment import private_core_environment, processes_in
from midfill.headless.lsp_session import LANGUAGE_SERVER, LspSession, open_session

TENTHS = 10
MOST_GROWTH = 1.05
FILES = 6  # that a window has open
KEPT_LINES = 8  # typed lines that stand in a window at a time
SETTINGS: dict[str, object] = {"storeMb": 32}  # full within the first tenth: what is kept on purpose is no growth
COLUMNS = (" keys", "core MB", "files", "threads", "servers MB", "files", "threads")
THREADS = 2 + WORKERS + 1  # of a window at most: the event loop's, that of snippets and the workers; its indexer's


@dataclass(frozen=True, slots=True)
class Load:
    """What a group of processes holds."""

    megabytes: float
    files: int
    threads: int


Row = tuple[int, Load, Load]
"""The keys so far, and what the core and the language servers hold."""


@dataclass(slots=True)
class Window:
    """An editor window: its session, and where the lines stand that were typed in it, the last one last."""

    session: LspSession
    uris: Sequence[str]
    typed: list[tuple[str, int]]


def measure(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    windows: Annotated[int, typer.Option(min=1)] = 5,
    keys: Annotated[int, typer.Option(min=TENTHS)] = 19_200,
    model: str = "tiny",
    rest: Annotated[float, typer.Option(min=1.0, help="Seconds.")] = 30.0,
    json_file: JsonFile = None,
) -> None:
    """Play the day and print a row after each tenth of it."""
    console = Console()
    files = sorted(path for path in folder.resolve().rglob("*.py") if 2_000 < path.stat().st_size < 40_000)
    if len(files) < windows:
        raise typer.BadParameter(f"{folder} has {len(files)} Python files of 2 to 40 kB: expected {windows} or more")
    console.print(_line_of(*COLUMNS))
    rows = list[Row]()

    def note(row: Row) -> None:
        rows.append(row)
        count, *loads = row
        console.print(_line_of(str(count), *(f"{each:.0f}" for load in loads for each in asdict(load).values())))

    cpu = asyncio.run(_day(files, windows, keys, model, rest, note))
    console.print(f"{cpu:.2f} s of CPU in {rest:.0f} s of rest, {machine()}")
    write(json_file, {"rows": [[n, asdict(core), asdict(servers)] for n, core, servers in rows], "rest_cpu_s": cpu})
    groups = (("core", [core for _, core, _ in rows], 0), ("servers", [servers for *_, servers in rows], windows * THREADS))
    if grown := [name for name, loads, bound in groups if _grows(loads, bound)]:
        console.print(f"grows: {', '.join(grown)}")
        raise typer.Exit(1)


def _line_of(*cells: str) -> str:
    return "  ".join(cell.rjust(len(column)) for cell, column in zip(cells, COLUMNS, strict=True))


def _grows(loads: Sequence[Load], threads: int) -> bool:
    """Whether the second half needs more than the end of the first, beyond so many threads."""
    before, after = loads[TENTHS // 2 - 1], loads[-1]
    more_threads = after.threads > max(before.threads, threads)
    return after.megabytes > MOST_GROWTH * before.megabytes or after.files > before.files or more_threads


async def _day(files: Sequence[Path], windows: int, keys: int, model: str, rest: float, note: Callable[[Row], None]) -> float:
    """Calls `note` after each tenth of the keys; the seconds of CPU in the rest."""
    chance, done = random.Random(0), 0
    with private_core_environment() as environment:
        async with AsyncExitStack() as stack:
            opened = []
            for index in range(windows):
                session = open_session(LANGUAGE_SERVER, settings=SETTINGS | {"model": model}, environment=environment)
                opened.append(_opened(await stack.enter_async_context(session), files[index::windows][:FILES]))
            for tenth in range(1, TENTHS + 1):
                while done < keys * tenth // TENTHS:
                    done += await _line(chance.choice(opened), chance)
                note((done, *_loads(environment)))
            before = cpu_seconds(environment)
            await asyncio.sleep(rest)
            return cpu_seconds(environment) - before


def _opened(session: LspSession, files: Sequence[Path]) -> Window:
    for path in files:
        session.open(path.as_uri(), "python", path.read_text(encoding="utf-8"))
    return Window(session, [path.as_uri() for path in files], [])


async def _line(window: Window, chance: random.Random) -> int:
    """Type a line of another file; the number of keys."""
    session, uri = window.session, chance.choice(window.uris)
    if len(window.typed) == KEPT_LINES:
        _undo(window)
    source = session.documents[chance.choice(window.uris)].lines
    text = "\n" + chance.choice([line.rstrip() for line in source if line.strip()])[:60]
    lines = session.documents[uri].lines
    line = chance.randrange(len(lines) - 1)
    cursor = Position(line, len(lines[line].rstrip("\r\n")))
    session.move_cursor(uri, cursor)
    for character in text:
        session.change(uri, [Edit(cursor, cursor, character)])
        cursor = Position(cursor.line + 1, 0) if character == "\n" else Position(cursor.line, cursor.column + 1)
        await session.suggest(uri, cursor)
    window.typed = [(there, at + (there == uri and at > line)) for there, at in window.typed] + [(uri, line + 1)]
    return len(text)


def _undo(window: Window) -> None:
    """Delete the oldest line that was typed here."""
    uri, line = window.typed.pop(0)
    window.session.change(uri, [Edit(Position(line, 0), Position(line + 1, 0), "")])
    window.typed = [(there, at - (there == uri and at > line)) for there, at in window.typed]


def _loads(environment: dict[str, str]) -> tuple[Load, Load]:
    """Of the core, and of all language servers with their indexers."""
    groups: tuple[list[psutil.Process], list[psutil.Process]] = ([], [])
    for process in processes_in(environment):
        groups["inference.core" not in process.cmdline()].append(process)
    core, servers = (
        Load(
            sum(process.memory_info().rss for process in group) / 1e6,
            sum(process.num_fds() for process in group),
            sum(process.num_threads() for process in group),
        )
        for group in groups
    )
    return core, servers


if __name__ == "__main__":
    typer.run(measure)

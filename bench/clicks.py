"""Counts what cursor moves without an edit cost: the CPU seconds of a real language server and a real core.

    python bench/clicks.py [--model bundled] [--clicks 20] [--lines 10600] [--seconds 1.0] [--json FILE]

It opens a generated file, has the core load the model by one suggestion for a small file, waits until both processes
are at rest, and moves the cursor to places all over the large file, one every `--seconds`. It does so for each value of
`prepareAhead`, and for `editing` once more after an edit.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from figures import JsonFile, write

from lsp_server.documents.documents import Edit, Position
from midfill.headless.environment import private_core_environment, processes_in
from midfill.headless.lsp_session import LANGUAGE_SERVER, LspSession, open_session
from protocol.settings import BUNDLED_MODEL

LARGE, SMALL = "file:///bench/large.py", "file:///bench/small.py"
REST_S = 1.0  # in which processes at rest use less than REST_SHARE of a CPU
REST_SHARE = 0.1
PATIENCE_S = 300.0
SETTLING_S = 10.0  # after a load, at rest, a core saves and measures the model's speed
AFTER_S = 5.0  # what the last click began may still run


def source(lines: int) -> str:
    """A Python file of so many lines, of which no two places are alike."""
    functions = (f"def scaled_{n}(value: int) -> int:\n    return value * {n} + offset_{n % 97}\n\n\n" for n in range(lines))
    return "".join("".join(functions).splitlines(keepends=True)[:lines])


def cpu_seconds(environment: dict[str, str]) -> float:
    """Of all processes that share the private core, since their starts."""
    return sum(sum(process.cpu_times()[:2]) for process in processes_in(environment))


async def rest(environment: dict[str, str]) -> float:
    """The CPU seconds so far, once the processes are at rest."""
    before = cpu_seconds(environment)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await asyncio.sleep(REST_S)
            now = cpu_seconds(environment)
            if now - before < REST_SHARE * REST_S:
                return now
            before = now


async def click(session: LspSession, clicks: int, lines: int, seconds: float) -> None:
    """Move the cursor up and down the large file, and wait for what that begins."""
    for number in range(clicks):
        session.move_cursor(LARGE, Position((number * 7 % clicks) * (lines // clicks), 0))
        await asyncio.sleep(seconds)
    await asyncio.sleep(AFTER_S)


async def measure(model: str, setting: str, clicks: int, lines: int, seconds: float, *, after_edit: bool) -> dict[str, float]:
    """The CPU seconds of the clicks, and the requests that the core answered ahead of a key."""
    with private_core_environment() as environment:
        settings = {"model": model, "prepareAhead": setting}
        async with open_session(LANGUAGE_SERVER, settings=settings, environment=environment) as session:
            session.open(SMALL, "python", "x = \n")
            await session.suggest(SMALL, Position(0, 4))
            await session.wait_until_ready(PATIENCE_S)
            session.open(LARGE, "python", source(lines))
            if after_edit:
                session.change(LARGE, [Edit(Position(0, 0), Position(0, 0), "#")])
            await asyncio.sleep(SETTLING_S)
            before = await rest(environment)
            count = len(session.prefetches)
            await click(session, clicks, lines, seconds)
            used = await rest(environment) - before
            return {"cpu_s": round(used, 2), "prepared": len(session.prefetches) - count}


def main(
    model: Annotated[str, typer.Option()] = BUNDLED_MODEL,
    clicks: Annotated[int, typer.Option(min=1)] = 20,
    lines: Annotated[int, typer.Option(min=100)] = 10_600,
    seconds: Annotated[float, typer.Option(min=0, help="Between two clicks.")] = 1.0,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print the CPU seconds of language server and core together."""
    rows = {}
    for setting, after_edit in (("editing", False), ("editing", True), ("always", False), ("never", False)):
        what = f"{setting}, after an edit" if after_edit else setting
        rows[what] = asyncio.run(measure(model, setting, clicks, lines, seconds, after_edit=after_edit))
        row = rows[what]
        print(f"{what:24} {row['cpu_s']:7.2f} CPU-s for {clicks} clicks, {row['prepared']:.0f} prompts prepared", flush=True)
    write(json_file, rows)


if __name__ == "__main__":
    typer.run(main)

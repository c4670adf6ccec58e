"""Times the first suggestion where nothing is resident: from no core at all, and in further files of some 2,500 lines.

    python bench/cold_file.py [--model bundled] [--files 3] [--lines 2500] [--json FILE]

A language server and a core start; a file is opened, and its first key asks for a suggestion at once. Then each further
file is opened and typed in without a pause before. For each file it prints the time to the suggestion, the CPU seconds
of both processes, which tell more on a busy machine, and the tokens that were recomputed; then time and tokens of a key
that follows once the whole prompt is resident. `--model Qwen2.5-1.5B` is a file of that shape with random weights.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from clicks import PATIENCE_S, cpu_seconds, rest, source
from figures import JsonFile, machine, write
from hybrid_files import SHAPES, write_file

from lsp_server.documents.documents import Edit, Position
from midfill.headless.environment import private_core_environment
from midfill.headless.lsp_session import LANGUAGE_SERVER, Answer, LspSession, open_session
from protocol.settings import BUNDLED_MODEL

SHORT_TOKENS = 1_000  # a prompt of fewer is a short one


async def key(session: LspSession, uri: str, cursor: Position, text: str) -> Answer:
    """Type the text at the cursor, and wait for the suggestion behind it."""
    session.change(uri, [Edit(cursor, cursor, text)])
    return await session.suggest(uri, Position(cursor.line, cursor.column + len(text)))


async def measure(model: str, weights: str, files: int, lines: int) -> list[dict[str, float]]:
    """The figures of each file, the one from nothing first, and a line for each as soon as it is measured."""
    rows = []
    with private_core_environment() as environment:
        settings = {"model": model, "weights": weights, "prepareAhead": "editing", "holdBackPercent": 0}
        since = time.perf_counter()
        async with open_session(LANGUAGE_SERVER, settings=settings, environment=environment) as session:
            used = 0.0
            for number in range(files + 1):
                uri, middle = f"file:///bench/{number}.py", Position(lines // 2 // 4 * 4 + 1, 0)
                since = since if not number else time.perf_counter()
                text = source(lines).replace("scaled", f"part_{number}").replace("offset", f"base_{number}")
                session.open(uri, "python", text)
                first = await key(session, uri, middle, "    ")
                elapsed, cpu_s = time.perf_counter() - since, cpu_seconds(environment) - used
                if first.cost is not None and first.cost.usage.prompt_tokens < SHORT_TOKENS:
                    await session.wait_for_prefetch(PATIENCE_S)
                used = await rest(environment)
                later = await key(session, uri, Position(middle.line, 4), "r")
                costs = [answer.cost.usage for answer in (first, later) if answer.cost]
                assert len(costs) == 2, "an answer came without the core"
                row = {
                    "first_s": elapsed,
                    "first_cpu_s": cpu_s,
                    "first_recomputed": costs[0].recomputed_tokens,
                    "first_prefill_s": costs[0].prefill_ms / 1e3,
                    "later_s": later.milliseconds / 1e3,
                    "later_recomputed": costs[1].recomputed_tokens,
                    "prompt_tokens": costs[1].prompt_tokens,
                }
                rows.append(row)
                print(
                    f"{'further file' if number else 'from nothing'} {row['first_s']:6.2f} s,"
                    f" {row['first_cpu_s']:5.2f} CPU-s to the first suggestion"
                    f" ({row['first_recomputed']:,.0f} tokens in {row['first_prefill_s']:.2f} s),"
                    f" then {row['later_s']:.3f} s ({row['later_recomputed']:.0f} of {row['prompt_tokens']:,.0f} tokens)",
                    flush=True,
                )
    return rows


def main(
    model: Annotated[str, typer.Option(help=f"As the setting, or any of {', '.join(SHAPES)}.")] = BUNDLED_MODEL,
    weights: Annotated[str, typer.Option(help="The setting `weights`.")] = "auto",
    files: Annotated[int, typer.Option(min=1, help="Further files.")] = 3,
    lines: Annotated[int, typer.Option(min=100)] = 2_500,
    json_file: JsonFile = None,
) -> None:
    """Measure, and print a line per file, and the median of the further ones."""
    with TemporaryDirectory() as folder:
        file = str(write_file(model, Path(folder) / f"{model}.gguf")) if model in SHAPES else model
        rows = asyncio.run(measure(file, weights, files, lines))
    wall, cpu = (median(row[figure] for row in rows[1:]) for figure in ("first_s", "first_cpu_s"))
    print(f"median of the further files: {wall:.2f} s, {cpu:.2f} CPU-s, {machine()}")
    write(json_file, rows)


if __name__ == "__main__":
    typer.run(main)

"""Measures on held-out Python files how often a suggestion ends where the real text's line or block ends.

    python bench/suggestion_ends.py FOLDER... [--model tiny] [--limit 200] [--seed 0] [--show 5]

At places of three kinds, real text is taken out and asked for as an editor would: the rest of a line, a block below the
line that opens it, and one to three whole statements within a block. The columns count suggestions among those shown:

- right: the suggestion is the real text;
- short, long: it agrees with the real text up to the end of the shorter one, and ends before or after its end;
- lines: it has as many lines as the real text;
- header: it ends with a line that opens a block;
- broken: the file parses with the real text, and not with the suggestion, which ends with no header: half a statement;
- limit: the core stopped at `maxTokens`.
"""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from inference.loading.engine import load_engine
from inference.loading.options import engine_options
from lsp_server.editing.documents import Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from midfill.headless.engine_core import EngineCore
from midfill_lab.evaluation.tasks import cut_files
from protocol.messages import Completion
from protocol.settings import Settings

COLUMNS = ("right", "short", "long", "lines", "header", "broken", "limit")
MOST_LINES = 8  # of a gap of statements
NOTHING_SHOWN = "nothing"


@dataclass(frozen=True, slots=True)
class Gap:
    """A place in a file where `middle` was taken out; the cursor is between `before` and `after`."""

    kind: str
    before: str
    middle: str
    after: str


def gaps(folders: list[Path], limit: int, seed: int) -> Iterator[Gap]:
    """Up to `limit` places of each kind, in files that parse."""
    for task in cut_files(folders, "single-line", limit, seed):
        middle = task.middle.rstrip()
        at = Random(f"{seed}/{task.name}").randrange(len(middle) - len(middle.lstrip()) + 1, len(middle))
        yield Gap("rest of line", task.before + middle[:at], middle[at:], task.after)
    for task in cut_files(folders, "single-line", 10 * limit, seed):
        if (statements := _statements_from(task.before, task.middle + task.after)) is not None:
            yield statements
        if (block := _block_below(task.before + task.middle, task.after)) is not None:
            yield block


def _statements_from(before: str, after: str) -> Gap | None:
    """Up to three statements from the line that begins `after`, if that is in the middle of a block."""
    first = before.count("\n") + 1
    try:
        nodes = list(ast.walk(ast.parse(before + after)))
    except (SyntaxError, ValueError):
        return None
    bodies = [getattr(node, name, []) for node in nodes for name in ("body", "orelse", "finalbody")]
    for body in filter(lambda body: isinstance(body, list), bodies):
        numbers = [number for number, node in enumerate(body) if node.lineno == first and number > 0]
        if numbers and body[numbers[0]].col_offset:
            wanted = body[numbers[0] : numbers[0] + Random(first).randint(1, 3)]
            lines = after.split("\n")
            count = max((node.end_lineno - first + 1 for node in wanted), default=0)
            if count <= MOST_LINES:
                middle, indent = "\n".join(lines[:count]), body[numbers[0]].col_offset
                rest = "\n".join(["", *lines[count:]])
                return Gap("statements", before + middle[:indent], middle[indent:], rest)
    return None


def _block_below(before: str, after: str) -> Gap | None:
    """The block that the last line of `before` opens, with the cursor at the indentation of its first line."""
    line = before.rpartition("\n")[2]
    if not line.rstrip().endswith((":", "(", "[", "{")):
        return None
    depth, lines = _depth(line), after.split("\n")[1:]
    end = next((number for number, text in enumerate(lines) if text.strip() and _depth(text) <= depth), len(lines))
    body = "\n".join(lines[:end]).rstrip()
    indent = len(body) - len(body.lstrip())
    rest = "\n".join(lines[:end])[len(body) :]
    if not body.strip() or "\n" in body[:indent] or not body.startswith(" "):
        return None
    below = "\n".join(["", *lines[end:]])
    return Gap("block", f"{before}\n{body[:indent]}", body[indent:], rest + below)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


async def suggestion(session: EditingSession, gap: Gap) -> tuple[str, Completion | None]:
    """The text that an editor would show, empty if none, and the core's completion."""
    opened = session.documents.open("file:///held-out.py", "python", 1, gap.before + gap.after)
    line = gap.before.count("\n")
    cursor = Position(line, len(gap.before.rpartition("\n")[2]))
    insertions = await session.suggest(opened, Query(cursor))
    session.close("file:///held-out.py")
    completion = opened.last_exchange[1] if opened.last_exchange is not None else None
    return insertions[0].text if insertions else "", completion


def parses(text: str) -> bool:
    """Whether Python can parse the text."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def verdicts(gap: Gap, shown: str, completion: Completion | None) -> Iterator[str]:
    """The columns that count this suggestion."""
    real = gap.middle
    if not shown:
        yield NOTHING_SHOWN
        return
    if shown.rstrip() == real.rstrip():
        yield "right"
    elif real.startswith(shown):
        yield "short"
    elif shown.startswith(real.rstrip()):
        yield "long"
    if shown.count("\n") == real.rstrip().count("\n"):
        yield "lines"
    if shown.rstrip().endswith(":"):
        yield "header"
    elif parses(gap.before + real + gap.after) and not parses(gap.before + shown + gap.after):
        yield "broken"
    if completion is not None and completion.finish_reason == "length":
        yield "limit"


def measure(
    folders: list[Path], settings: Settings, limit: int, seed: int, on_case: Callable[[Gap, str, set[str]], None]
) -> dict[str, Counter[str]]:
    """How many suggestions each column counts, by kind of place; "shown" counts those that are shown."""
    core = EngineCore(load_engine(replace(engine_options(settings), threads=0)))
    counts: dict[str, Counter[str]] = {}

    async def run() -> None:
        session = EditingSession(core, settings, "ends", lambda _: None)
        for gap in gaps(folders, limit, seed):
            found = counts.setdefault(gap.kind, Counter())
            if found["n"] < limit:
                shown, completion = await suggestion(session, gap)
                said = set(verdicts(gap, shown, completion))
                found.update(["n", *said, *([] if NOTHING_SHOWN in said else ["shown"])])
                on_case(gap, shown, said)

    asyncio.run(run())
    core.engine.close()
    return counts


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of Python files.")],
    model: Annotated[str, typer.Option(help="As for `midfill lsp`.")] = "tiny",
    limit: Annotated[int, typer.Option(help="Places of each kind.")] = 200,
    seed: Annotated[int, typer.Option(help="Chooses the places.")] = 0,
    show: Annotated[int, typer.Option(help="Print so many suggestions that break the file.")] = 0,
) -> None:
    """Measure where suggestions end."""
    console, left = Console(), [show]

    def on_case(gap: Gap, shown: str, said: set[str]) -> None:
        if "broken" in said and left[0] > 0:
            left[0] -= 1
            lines = [
                *gap.before.splitlines()[-4:],
                f">>> {shown!r}",
                f"real {gap.middle!r}",
                *gap.after.split("\n")[:3],
            ]
            console.print("\n".join([f"--- {gap.kind} {sorted(said)}", *lines]), markup=False, highlight=False)

    settings = Settings(model=model, hold_back_percent=0, shorten_unlikely=False, alternatives=0)
    counts = measure(folders, settings, limit, seed, on_case)
    table = Table("place", "n", "shown", *(f"{column}, %" for column in COLUMNS))
    for kind, found in counts.items():
        shares = (f"{100 * found[column] / max(1, found['shown']):.1f}" for column in COLUMNS)
        table.add_row(kind, str(found["n"]), str(found["shown"]), *shares)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)

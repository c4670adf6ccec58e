"""The command `midfill stats`: prints the outcome of suggestions on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lsp_server.usage.statistics import LATENCY_CLASSES_MS, Statistics, read_statistics, statistics_file


def stats_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show how many suggestions you accepted, and how fast they came.

    midfill counts on this machine only and stores no text.
    """
    path = statistics_file()
    statistics = read_statistics(path)
    if as_json:
        typer.echo(json.dumps(summary(statistics), indent=2))
        return
    console = Console()
    console.print(_table(statistics))
    console.print(f"Counted in {path}; set `statistics` to false to stop counting.", soft_wrap=True)


def summary(statistics: Statistics) -> dict[str, Any]:
    """The JSON object of the statistics."""
    numbers = asdict(statistics)
    answers = numbers.pop("answers")
    classes = [*map(str, LATENCY_CLASSES_MS), "more"]
    return numbers | {
        "acceptance_share": _share(statistics.accepted + statistics.accepted_partly, statistics.shown),
        "kept_share": statistics.kept_share,
        "time_to_suggestion_ms": {f"p{rank}": statistics.latency_ms(rank / 100) for rank in (50, 95, 99)},
        "answers_by_ms": dict(zip(classes, answers, strict=True)),
    }


def _table(statistics: Statistics) -> Table:
    numbers = summary(statistics)
    times = numbers["time_to_suggestion_ms"]
    slowest = f"over {LATENCY_CLASSES_MS[-1]}"
    rows = {
        "suggestions shown": str(statistics.shown),
        "accepted": str(statistics.accepted),
        "accepted partly": str(statistics.accepted_partly),
        "typed out instead of accepted": str(statistics.typed),
        "rejected": str(statistics.rejected),
        "accepted, whole or partly": _percent(numbers["acceptance_share"]),
        "of that, still there after 30 s": _percent(numbers["kept_share"]),
        **{f"time to suggestion, {rank}, ms, at most": str(limit or slowest) for rank, limit in times.items()},
    }
    table = Table(title="midfill on this machine", title_justify="left", show_header=False)
    table.add_column("")
    table.add_column(justify="right")
    if not sum(statistics.answers):
        rows = dict(list(rows.items())[:-3])
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"

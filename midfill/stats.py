"""The command `midfill stats`: the statistics of a period in total and by group, as table, page or JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lsp_server.usage.statistics import LATENCY_CLASSES_MS, Group, Statistics, read_statistics, statistics_file, total
from midfill.console import open_console
from midfill.options import check_writable
from protocol.errors import BadInput

Dimension = Literal["day", "model", "language"]

COLUMNS = ("shown", "accepted", "kept 30 s", "kept 10 min", "of your code", "cache hits", "p50 ms", "p95 ms")
LEGEND = (
    "Accepted: the share of shown suggestions that you accepted, whole or in part.",
    "Kept: the share of accepted characters that was still there later.",
    "Of your code: accepted characters in all that you typed or accepted.",
    "Cache hits: prompts of which at most 3 tokens more than the inserted ones were computed.",
    "p50, p95: the time from a request to its suggestion, at most.",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """The statistics of a period."""

    groups: Mapping[Group, Statistics]

    @property
    def total(self) -> Statistics:
        return total(self.groups.values())

    @property
    def first_day(self) -> str:
        """The first day with counts; empty if there is none."""
        return min((group.day for group in self.groups), default="")

    def by(self, dimension: Dimension) -> dict[str, Statistics]:
        """The statistics by this part of their groups: days in order, others by their shown suggestions."""
        parts: dict[str, list[Statistics]] = defaultdict(list)
        for group, statistics in self.groups.items():
            if name := getattr(group, dimension):
                parts[name].append(statistics)
        sums = {name: total(part) for name, part in parts.items()}
        if dimension == "day":
            return dict(sorted(sums.items()))
        return dict(sorted(sums.items(), key=lambda item: (-item[1].shown, item[0])))

    def as_json(self) -> dict[str, Any]:
        """The total's counts and figures, and those of each day, model and language."""
        return self._figures(self.total) | {
            "by_day": self._rows("day"),
            "by_model": self._rows("model"),
            "by_language": self._rows("language"),
        }

    def _rows(self, dimension: Dimension) -> list[dict[str, Any]]:
        return [{dimension: name} | self._figures(part) for name, part in self.by(dimension).items()]

    def _figures(self, statistics: Statistics) -> dict[str, Any]:
        counts = asdict(statistics)
        answers = counts.pop("answers")
        return counts | {
            "acceptance_share": statistics.acceptance_share,
            "kept_share_30s": statistics.kept_share_30s,
            "kept_share_10min": statistics.kept_share_10min,
            "written_share": statistics.written_share,
            "hit_share": statistics.hit_share,
            "time_to_suggestion_ms": {f"p{rank}": statistics.latency_ms(rank / 100) for rank in (50, 95, 99)},
            "answers_by_ms": dict(zip([*map(str, LATENCY_CLASSES_MS), "more"], answers, strict=True)),
        }


def summary_of(groups: Mapping[Group, Statistics], days: int | None, today: date) -> Summary:
    """The summary of the last `days` days, today included; of all time if None."""
    since = (today - timedelta(days=days - 1)).isoformat() if days else ""
    return Summary({group: statistics for group, statistics in groups.items() if group.day >= since})


def cells(statistics: Statistics) -> tuple[str, ...]:
    """The figures of one row, in the order of COLUMNS."""
    return (
        f"{statistics.shown:,}",
        percent(statistics.acceptance_share),
        percent(statistics.kept_share_30s),
        percent(statistics.kept_share_10min),
        percent(statistics.written_share),
        percent(statistics.hit_share),
        latency(statistics, 0.5),
        latency(statistics, 0.95),
    )


def percent(share: float | None) -> str:
    """A share from 0 to 1."""
    return "–" if share is None else f"{share:.0%}"


def latency(statistics: Statistics, share: float) -> str:
    """The upper bound of a latency quantile in milliseconds."""
    if not any(statistics.answers):
        return "–"
    return str(statistics.latency_ms(share) or f">{LATENCY_CLASSES_MS[-1]}")


_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>midfill statistics</title><style>html {{ color-scheme: light dark }} {stylesheet}</style></head>
<body><pre>{code}</pre></body></html>
"""
_PAGE_COLUMNS = 120
_LATEST_DAYS = 14  # in the table, unless --days says more


def stats_command(
    days: Annotated[int | None, typer.Option(min=1, help="Only the last days, today included.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the table as a page, which needs no network.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Delete all counts.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without a question.")] = False,
) -> None:
    """Show what you accepted and kept of suggestions, how much of your code that is, and how fast they came.

    midfill counts on this machine only and stores no text. docs/statistics.md defines each figure.
    """
    path = statistics_file()
    if reset:
        if yes or typer.confirm(f"Delete all counts in {path}?"):
            path.unlink(missing_ok=True)
        return
    if html == Path("-"):
        raise BadInput("--html -: the page needs a file")
    check_writable(html)
    summary = summary_of(read_statistics(path), days, date.today())
    if html is not None:
        page = Console(record=True, file=StringIO(), width=_PAGE_COLUMNS)
        _show(page, summary, days, path)
        page.save_html(str(html), code_format=_PAGE)
        typer.echo(f"wrote {html}", err=True)  # JSON may go to the standard output
    if as_json:
        typer.echo(json.dumps(summary.as_json(), indent=2))
    elif html is None:
        _show(open_console(), summary, days, path)


def _show(console: Console, summary: Summary, days: int | None, path: Path) -> None:
    whole = summary.total
    if not whole.shown:
        period = f"in the last {days} days" if days else "yet"
        console.print(f"No suggestion was shown {period}. midfill counts in {path}.", markup=False, soft_wrap=True)
        return
    since = f"since {summary.first_day}" if summary.first_day else ""
    console.print(f"[bold]midfill on this machine[/] {since}")
    console.print(
        f"{whole.shown:,} suggestions shown: {whole.accepted:,} accepted at once, {whole.accepted_partly:,} in part, "
        f"{whole.typed_through:,} typed by hand, {whole.dismissed:,} dismissed"
    )
    console.print(_table(summary, days or _LATEST_DAYS))
    for line in LEGEND:
        console.print(line, style="bright_black", highlight=False)
    console.print(f"Counted in {path}; set `statistics` to false to stop counting.", markup=False, soft_wrap=True)


def _table(summary: Summary, days: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bright_black")
    table.add_column("", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right")
    table.add_row("all", *cells(summary.total), style="bold", end_section=True)
    sections = ([*summary.by("day").items()][-days:][::-1], summary.by("language").items(), summary.by("model").items())
    for section in sections:
        table.add_row()
        for name, statistics in section:
            if statistics.shown:
                table.add_row(escape(name), *cells(statistics))
    return table

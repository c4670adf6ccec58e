"""The command `midfill stats`: the statistics of a period in total and by group, as table, file or HTML page."""

from __future__ import annotations

import csv
import html
import json
import sys
import webbrowser
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lsp_server.usage.statistics import COUNTS, LATENCY_CLASSES_MS, Group, Statistics, read_statistics, statistics_file, total
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


Series = tuple[tuple[str, str, Callable[[Statistics], int]], ...]

_DAYS = 14  # the fewest that bars show: a single day is a bar, not a wall
_OUTCOMES: Series = (
    ("accepted at once", "#2a9d8f", lambda day: day.accepted),
    ("accepted in part", "#8cc5a2", lambda day: day.accepted_partly),
    ("typed by hand", "#e9b44c", lambda day: day.typed_through),
    ("dismissed", "#9aa3b2", lambda day: day.dismissed),
)
_WRITTEN: Series = (
    ("accepted", "#2a9d8f", lambda day: day.accepted_characters),
    ("typed", "#9aa3b2", lambda day: day.typed_characters),
)
_STYLE = Path(__file__).with_suffix(".css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_page(summary: Summary, path: Path) -> None:
    """Write the page."""
    body = _filled(summary) if summary.total.shown else _empty()
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    head += '<meta name="viewport" content="width=device-width">'
    head += f"<title>midfill statistics</title><style>{_STYLE.read_text(encoding='utf-8')}</style>"
    page = f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'
    path.write_text(page, encoding="utf-8")


def _empty() -> str:
    return (
        "<h1>midfill statistics</h1><p>Nothing was counted in this time. Open a file in your editor, type, and accept "
        "a suggestion: it is counted here within some seconds.</p>"
    )


def _filled(summary: Summary) -> str:
    since = f"Since {summary.first_day}. " if summary.first_day else ""
    days = summary.by("day")
    parts = [
        f"<h1>midfill statistics</h1><p>{since}Counted on this machine only, without any text.</p>",
        f'<div class="cards">{"".join(_cards(summary.total))}</div>',
        '<div class="plots">',
        _bars("Suggestions", "Shown a day, by their outcome.", days, _OUTCOMES),
        _bars("Written code", "Characters a day.", days, _WRITTEN),
        "</div>",
        *(_html_table(summary, dimension) for dimension in ("language", "model", "day")),
        f"<footer>{''.join(f'<p>{html.escape(note)}</p>' for note in LEGEND)}</footer>",
    ]
    return "".join(parts)


def _cards(whole: Statistics) -> list[str]:
    accepted = whole.accepted + whole.accepted_partly
    cards = (
        ("accepted", percent(whole.acceptance_share), f"{accepted:,} of {whole.shown:,} suggestions"),
        ("kept after 10 min", percent(whole.kept_share_10min), f"{percent(whole.kept_share_30s)} after 30 s"),
        ("of your code", percent(whole.written_share), f"{whole.accepted_characters:,} characters accepted"),
        ("cache hits", percent(whole.hit_share), f"of {whole.hits + whole.partial_hits + whole.misses:,}"),
        ("to a suggestion", f"{latency(whole, 0.5)} ms", f"p50; p95 {latency(whole, 0.95)} ms"),
    )
    return [f'<div class="card"><p>{name}</p><b>{value}</b><p>{more}</p></div>' for name, value, more in cards]


def _bars(title: str, explanation: str, days: Mapping[str, Statistics], series: Series) -> str:
    """A bar a day up to the last day with counts, stacked of the series; it names its counts under the pointer."""
    if not days:
        return ""
    last = date.fromisoformat(max(days))
    first = min(date.fromisoformat(min(days)), last - timedelta(days=_DAYS - 1))
    counts = {day: [value(statistics) for _, _, value in series] for day, statistics in days.items()}
    most = max(map(sum, counts.values())) or 1
    keys = "".join(f'<span class="key"><i style="background:{colour}"></i>{name}</span> ' for name, colour, _ in series)
    bars = []
    for number in range((last - first).days + 1):
        day = (first + timedelta(days=number)).isoformat()
        stack = counts.get(day, [0] * len(series))
        told = "; ".join(f"{name} {count:,}" for (name, _, _), count in zip(series, stack, strict=True))
        parts = (
            f'<i style="flex:{count};background:{colour}"></i>'
            for (_, colour, _), count in zip(series, stack, strict=True)
            if count
        )
        bars.append(f'<div style="height:{sum(stack) / most:.1%}" title="{day}: {told}">{"".join(parts)}</div>')
    return (
        f"<section><h2>{title}</h2><p>{explanation} The highest bar: {most:,}.</p><p>{keys}</p>"
        f'<div class="bars">{"".join(bars)}</div><p class="ends"><span>{first}</span><span>{last}</span></p></section>'
    )


def _html_table(summary: Summary, dimension: Dimension) -> str:
    rows = [(name, *cells(part)) for name, part in summary.by(dimension).items()]
    if dimension == "day":
        rows.reverse()
    lines = [_row("th", (f"By {dimension}", *COLUMNS)), *(_row("td", row) for row in rows)]
    return f'<div class="table"><table>{"".join(lines)}</table></div>' if rows else ""


def _row(tag: str, row: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"


_LATEST_DAYS = 14  # in the table, unless --days says more


def stats_command(
    days: Annotated[int | None, typer.Option(min=1, help="Only the last days, today included.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page, which needs no network.")] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write the counts as CSV; - for the standard output.")] = None,
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
    for output in (html, export):
        check_writable(output)
    summary = summary_of(read_statistics(path), days, date.today())
    if export is not None:
        _export(summary.groups, export)
    if html is not None or opens:
        _write_page(summary, html or _page_file(), opens)
    if as_json:
        typer.echo(json.dumps(summary.as_json(), indent=2))
    elif html is None and export is None and not opens:
        _show(summary, days, path)


def _show(summary: Summary, days: int | None, path: Path) -> None:
    console = Console()
    whole = summary.total
    if not summary.groups:
        period = f"in the last {days} days" if days else "yet"
        console.print(f"No suggestion was counted {period}. midfill counts in {path}.", markup=False, soft_wrap=True)
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
            table.add_row(escape(name), *cells(statistics))
    return table


def _export(groups: Mapping[Group, Statistics], path: Path) -> None:
    with nullcontext(sys.stdout) if path == Path("-") else path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*Group._fields, *COUNTS], restval=0, lineterminator="\n")
        writer.writeheader()
        writer.writerows(group._asdict() | dict(statistics.counts) for group, statistics in groups.items())


def _page_file() -> Path:
    return platformdirs.user_cache_path("midfill", appauthor=False, ensure_exists=True) / "statistics.html"


def _write_page(summary: Summary, path: Path, opens: bool) -> None:
    write_page(summary, path)
    typer.echo(f"wrote {path}", err=True)  # JSON or CSV may go to the standard output
    if opens and not webbrowser.open(path.resolve().as_uri()):
        raise BadInput(f"no browser was found: open {path} in one")

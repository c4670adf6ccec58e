"""The command `midfill stats`: its options, and its output in the terminal."""

from __future__ import annotations

import csv
import json
import sys
import webbrowser
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Annotated

import platformdirs
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lsp_server.usage.database import read_statistics, statistics_file
from lsp_server.usage.statistics import COUNTS, Group, Statistics
from midfill.output_files import check_writable
from midfill.stats.page import write_page
from midfill.stats.summary import COLUMNS, LEGEND, Summary, cells, summary_of
from protocol.errors import BadInput

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

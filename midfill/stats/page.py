"""The page of the statistics: one HTML file with figures, bars and tables; it loads nothing and runs no script."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path

from lsp_server.usage.statistics import Statistics
from midfill.stats.summary import COLUMNS, LEGEND, Dimension, Summary, cells, latency, percent

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
# In VS Code the page follows the editor's theme, elsewhere the system's.
_STYLE = """
:root { color-scheme: light dark; --text: #24292f; --quiet: #66707b; --back: #fff; --card: #f5f6f8; --line: #dfe3e8; }
@media (prefers-color-scheme: dark) { :root {
  --text: #e3e6ea; --quiet: #9aa4af; --back: #16191d; --card: #1f242a; --line: #343b44; } }
body[data-vscode-theme-kind] { --text: var(--vscode-editor-foreground); --quiet: var(--vscode-descriptionForeground);
  --back: transparent; --card: #80808020; --line: #80808050; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 1120px; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0; }
p { color: var(--quiet); margin: .2rem 0; font-size: .875rem; }
.cards, .plots { display: grid; gap: .75rem; margin: 1.5rem 0 2rem; }
.cards { grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); }
.plots { grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 2rem 1.75rem; }
.card { background: var(--card); border-radius: 10px; padding: .8rem 1rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums; }
.bars { display: flex; align-items: flex-end; height: 200px; margin-top: .5rem; border-bottom: 1px solid var(--line); }
.bars div { flex: 1; display: flex; flex-direction: column-reverse; margin-inline: min(3px, .1vw); }
.ends { display: flex; justify-content: space-between; }
.key { white-space: nowrap; margin-right: .8em; }
.key i { padding: 0 .5em; border-radius: 3px; margin-right: .4em; }
.table { overflow-x: auto; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; font-size: .9rem; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 500; color: var(--quiet); }
th:first-child { font-size: 1.05rem; font-weight: 700; color: var(--text); }
footer { margin-top: 2rem; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_page(summary: Summary, path: Path) -> None:
    """Write the page."""
    body = _filled(summary) if summary.total.shown else _empty()
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    head += '<meta name="viewport" content="width=device-width">'
    head += f"<title>midfill statistics</title><style>{_STYLE}</style>"
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
        *(_table(summary, dimension) for dimension in ("language", "model", "day")),
        f"<footer>{''.join(f'<p>{html.escape(note)}</p>' for note in LEGEND)}</footer>",
    ]
    return "".join(parts)


def _cards(whole: Statistics) -> list[str]:
    accepted = whole.accepted + whole.accepted_partly
    cards = (
        ("accepted", percent(whole.acceptance_share), f"{accepted:,} of {whole.shown:,} suggestions"),
        ("kept after 10 min", percent(whole.kept_share_10min), f"{percent(whole.kept_share_30s)} after 30 s"),
        ("of your code", percent(whole.written_share), f"{whole.accepted_characters:,} characters accepted"),
        ("hot prompts", percent(whole.hot_share), f"of {whole.hot + whole.warm + whole.cold:,}"),
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


def _table(summary: Summary, dimension: Dimension) -> str:
    rows = [(name, *cells(part)) for name, part in summary.by(dimension).items()]
    if dimension == "day":
        rows.reverse()
    lines = [_row("th", (f"By {dimension}", *COLUMNS)), *(_row("td", row) for row in rows)]
    return f'<div class="table"><table>{"".join(lines)}</table></div>' if rows else ""


def _row(tag: str, row: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

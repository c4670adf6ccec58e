"""The page of the statistics: one HTML file with figures, plots and tables, which loads nothing."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path

import plotly.graph_objects as go

from lsp_server.usage.statistics import Statistics
from midfill.stats.summary import Dimension, Summary
from midfill.stats.wording import COLUMNS, LEGEND, cells, duration, latency, percent, saving

_DAYS = 7  # the least that an axis shows: a single day is a bar, not a wall
_DAY_MS = 86_400_000
_OUTCOMES = (
    ("accepted at once", "#2a9d8f", lambda day: day.accepted),
    ("accepted in part", "#8cc5a2", lambda day: day.accepted_partly),
    ("typed by hand", "#e9b44c", lambda day: day.typed_through),
    ("dismissed", "#9aa3b2", lambda day: day.dismissed),
)
_WRITTEN = (
    ("accepted", "#2a9d8f", lambda day: day.accepted_characters),
    ("typed", "#9aa3b2", lambda day: day.typed_characters),
)
_SHARES = (
    ("kept after 30 s", "#8cc5a2", lambda day: day.kept_share_30s),
    ("kept after 10 min", "#2a9d8f", lambda day: day.kept_share_10min),
    ("accepted, of shown", "#5b7db1", lambda day: day.acceptance_share),
    ("hot", "#8d7ab8", lambda day: day.hot_share),
)
_TIMES = (
    ("p95", "#e9b44c", lambda day: day.latency_ms(0.95)),
    ("p50", "#2a9d8f", lambda day: day.latency_ms(0.5)),
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
.cards { display: grid; grid-template-columns: repeat(2, 1fr); gap: .75rem; margin: 1.5rem 0 2rem; }
@media (min-width: 560px) { .cards { grid-template-columns: repeat(3, 1fr); } }
@media (min-width: 1000px) { .cards { grid-template-columns: repeat(6, 1fr); } }
.card { background: var(--card); border-radius: 10px; padding: .8rem 1rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums; }
.plots { display: grid; grid-template-columns: minmax(0, 1fr); gap: 2rem 1.75rem; }
@media (min-width: 860px) { .plots { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
.js-plotly-plot text { fill: var(--quiet) !important; } .js-plotly-plot .hovertext text { fill: #fff !important; }
.table { overflow-x: auto; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; font-size: .9rem; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 500; color: var(--quiet); }
th:first-child { font-size: 1.05rem; font-weight: 700; color: var(--text); }
footer { margin-top: 2rem; }
"""
# Nothing is loaded, and nothing leaves the page.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

Series = tuple[tuple[str, str, Callable[[Statistics], float | None]], ...]


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
    notes = (*LEGEND, saving(summary.typing_speed))
    parts = [
        f"<h1>midfill statistics</h1><p>{since}Counted on this machine only, without any text.</p>",
        f'<div class="cards">{"".join(_cards(summary))}</div>',
        _plots(summary.by("day")),
        *(_table(summary, dimension) for dimension in ("language", "model", "day")),
        f"<footer>{''.join(f'<p>{html.escape(note)}</p>' for note in notes)}</footer>",
    ]
    return "".join(parts)


def _cards(summary: Summary) -> list[str]:
    whole = summary.total
    accepted = whole.accepted + whole.accepted_partly
    speed = summary.typing_speed
    cards = (
        ("accepted", percent(whole.acceptance_share), f"{accepted:,} of {whole.shown:,} suggestions"),
        ("kept after 10 min", percent(whole.kept_share_10min), f"{percent(whole.kept_share_30s)} after 30 s"),
        ("of your code", percent(whole.written_share), f"{whole.accepted_characters:,} characters accepted"),
        (
            "time saved, about",
            duration(whole.saved_s(speed)),
            f"at {speed:.1f} characters/s" if speed else "typing speed not known yet",
        ),
        ("hot prompts", percent(whole.hot_share), f"of {whole.hot + whole.warm + whole.cold:,}"),
        ("to a suggestion", f"{latency(whole, 0.5)} ms", f"p50; p95 {latency(whole, 0.95)} ms"),
    )
    return [f'<div class="card"><p>{name}</p><b>{value}</b><p>{more}</p></div>' for name, value, more in cards]


def _plots(days: Mapping[str, Statistics]) -> str:
    if not days:
        return ""
    plots = [
        ("Suggestions", "Shown per day, by their outcome.", _bars(days, _OUTCOMES)),
        ("Written code", "Characters per day.", _bars(days, _WRITTEN)),
    ]
    if len(days) > 1:  # a line needs two points
        plots += [
            ("Shares", "Of accepted characters, of shown suggestions, of prompts.", _lines(days, _SHARES, share=True)),
            ("Time to a suggestion", "Milliseconds, at most.", _lines(days, _TIMES, share=False)),
        ]
    sections, script = [], True  # the first plot brings the library, the others use it
    for title, explanation, figure in plots:
        plot = _styled(figure, days).to_html(
            full_html=False, include_plotlyjs=script, config={"displayModeBar": False, "responsive": True}
        )
        sections.append(f"<section><h2>{title}</h2><p>{explanation}</p>{plot}</section>")
        script = False
    return f'<div class="plots">{"".join(sections)}</div>'


def _bars(days: Mapping[str, Statistics], series: Series) -> go.Figure:
    figure = go.Figure()
    for name, colour, value in series:
        counts = [value(day) for day in days.values()]
        figure.add_bar(x=[*days], y=counts, name=name, marker_color=colour, width=0.75 * _DAY_MS)
    return figure.update_layout(barmode="stack")


def _lines(days: Mapping[str, Statistics], series: Series, *, share: bool) -> go.Figure:
    figure = go.Figure()
    for name, colour, value in series:
        figure.add_scatter(
            x=[*days],
            y=[value(day) for day in days.values()],
            name=name,
            mode="lines+markers",
            connectgaps=True,
            line={"color": colour, "width": 2},
            marker={"size": 5},
        )
    if share:
        return figure.update_yaxes(tickformat=".0%", range=[0, 1.04], hoverformat=".0%")
    return figure.update_yaxes(rangemode="tozero", ticksuffix=" ms")


def _styled(figure: go.Figure, days: Mapping[str, Statistics]) -> go.Figure:
    first, last = date.fromisoformat(min(days)), date.fromisoformat(max(days))
    first = min(first, last - timedelta(days=_DAYS - 1))
    grid = {"gridcolor": "rgba(128,128,128,.2)", "zerolinecolor": "rgba(128,128,128,.35)"}
    figure.update_xaxes(
        type="date",
        range=[f"{first - timedelta(days=1)}T12:00", f"{last}T12:00"],
        showgrid=False,
        hoverformat="%a %d %b %Y",
        tickformat="%d %b",
    )
    return figure.update_yaxes(**grid, fixedrange=True).update_layout(
        template="none",
        height=270,
        margin={"l": 52, "r": 8, "t": 8, "b": 56},
        legend={"orientation": "h", "y": -0.14, "x": 0, "traceorder": "normal"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="x unified",
        font={"family": "system-ui, sans-serif", "size": 12},
    )


def _table(summary: Summary, dimension: Dimension) -> str:
    rows = [(name, *cells(part, summary.typing_speed)) for name, part in summary.by(dimension).items()]
    if dimension == "day":
        rows.reverse()
    lines = [_row("th", (f"By {dimension}", *COLUMNS)), *(_row("td", row) for row in rows)]
    return f'<div class="table"><table>{"".join(lines)}</table></div>' if rows else ""


def _row(tag: str, row: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

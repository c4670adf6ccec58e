"""The page of a replay's result: one self-contained HTML file with its tables and plots."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from midfill.replay.report import COLUMNS, LEGEND, summary_cells
from midfill.replay.results import ReplayResult, StrategyResult, percentile

# Calm where little was computed, warmer the more it was.
_HEAT_COLOURS = {"hot": "#2a9d8f", "warm": "#f3a712", "cold": "#d1495b"}
_STRATEGY_COLOURS = {"efim": "#2a9d8f", "spm": "#7a5195", "psm": "#3a7ca5", "none": "#8d99ae"}
_NONE = 0.5  # the place of zero tokens on a logarithmic axis
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 0; }
p { color: #555; margin: .3rem 0; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
"""


def write_html_report(result: ReplayResult, path: Path) -> None:
    """Write the page; it needs nothing from the network."""
    sections = (
        (
            "Recomputed tokens per keystroke",
            (
                "Tokens that the model computed before it could begin the suggestion, one dot per request; 0 is "
                "at the bottom."
            ),
            _per_keystroke(result),
        ),
        (
            "Distribution of recomputed tokens",
            "Share of requests that recomputed at most this many tokens: higher and further left is better.",
            _distributions(result),
        ),
        (
            "Requests that were not hot",
            "Their number and their cost (logarithmic), by the kind of edit before them.",
            _misses(result),
        ),
        ("Memory", "KV that the store held after each request, by tier, in MB.", _memory(result)),
    )
    parts = [
        f"<h1>{html.escape(result.trace)}</h1><p>{html.escape(result.model)}, {result.mode}</p>",
        f"{_table(result)}<p>{html.escape(LEGEND)}</p>",
    ]
    script: bool | str = True  # the first plot brings the library, the others use it
    for title, explanation, figure in sections:
        if figure is not None:
            plot = figure.to_html(full_html=False, include_plotlyjs=script, config={"displayModeBar": False})
            parts.append(f"<h2>{title}</h2><p>{explanation}</p>{plot}")
            script = False
    title = html.escape(f"{result.trace} replayed")
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    page = f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'
    path.write_text(page, encoding="utf-8")


def _table(result: ReplayResult) -> str:
    rows = zip(COLUMNS, *map(summary_cells, result.strategies), strict=True)
    return f"<table>{''.join(_cells('td' if number else 'th', row) for number, row in enumerate(rows))}</table>"


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _per_keystroke(result: ReplayResult) -> go.Figure:
    """Rows of dots over the session, one row per strategy, coloured by heat."""
    names = [strategy.strategy for strategy in result.strategies]
    figure = make_subplots(rows=len(names), shared_xaxes=True, vertical_spacing=0.04, row_titles=names)
    first_row = {
        heat: next((row for row, strategy in enumerate(result.strategies, start=1) if _count(strategy, heat)), 1)
        for heat in _HEAT_COLOURS
    }
    for row, strategy in enumerate(result.strategies, start=1):
        for rank, (heat, colour) in enumerate(_HEAT_COLOURS.items()):
            records = [record for record in strategy.records if record.heat == heat]
            dots = go.Scattergl(
                x=[record.step for record in records],
                y=[_logarithmic(record.recomputed_tokens) for record in records],
                text=[f"{record.recomputed_tokens} tokens, {record.kind}" for record in records],
                mode="markers",
                marker={"color": colour, "size": 3},
                name=heat,
                legendgroup=heat,
                legendrank=rank,
                showlegend=row == first_row[heat],
                hovertemplate="%{text}, keystroke %{x}",
            )
            figure.add_trace(dots, row=row, col=1)
    figure.update_yaxes(type="log", dtick=1, range=[math.log10(_NONE) - 0.1, 4], title_text="tokens")
    figure.update_xaxes(title_text="keystroke", row=len(names))
    return _styled(figure, height=120 + 190 * len(names))


def _logarithmic(tokens: float) -> float:
    """The place of `tokens` on a logarithmic axis, which has one for zero."""
    return max(tokens, _NONE)


def _count(result: StrategyResult, heat: str) -> int:
    return sum(record.heat == heat for record in result.records)


def _distributions(result: ReplayResult) -> go.Figure:
    figure = go.Figure()
    shares = [step / 1000 for step in range(1, 1001)]
    for strategy in result.strategies:
        recomputed = sorted(record.recomputed_tokens for record in strategy.records)
        figure.add_scatter(
            x=[_logarithmic(percentile(recomputed, share)) for share in shares],
            y=shares,
            name=strategy.strategy,
            line={"color": _STRATEGY_COLOURS.get(strategy.strategy), "shape": "hv"},
        )
    figure.update_xaxes(type="log", dtick=1, title_text="recomputed tokens")
    figure.update_yaxes(title_text="share of requests", tickformat=".0%", range=[0, 1.01])
    return _styled(figure, height=380)


def _misses(result: ReplayResult) -> go.Figure:
    figure = make_subplots(
        cols=2, subplot_titles=("share of all requests", "recomputed tokens per request, of all requests")
    )
    for strategy in result.strategies:
        counts: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for record in strategy.records:
            if record.heat != "hot":
                counts[record.kind] += 1
                tokens[record.kind] += record.recomputed_tokens
        total = max(len(strategy.records), 1)
        for column, numbers in enumerate((counts, tokens), start=1):
            kinds = sorted(numbers)
            bars = go.Bar(
                x=kinds,
                y=[numbers[kind] / total for kind in kinds],
                name=strategy.strategy,
                legendgroup=strategy.strategy,
                showlegend=column == 1,
                marker_color=_STRATEGY_COLOURS.get(strategy.strategy),
            )
            figure.add_trace(bars, row=1, col=column)
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(tickformat=".2~%", col=1)
    return _styled(figure, height=420)


def _memory(result: ReplayResult) -> go.Figure | None:
    figure = go.Figure()
    for strategy in result.strategies:
        for tier, name in enumerate(strategy.tiers):
            records = [record for record in strategy.records if tier < len(record.store_bytes)]
            figure.add_scattergl(
                x=[record.step for record in records],
                y=[record.store_bytes[tier] / 1e6 for record in records],
                name=f"{strategy.strategy}, {name}",
                line={"color": _STRATEGY_COLOURS.get(strategy.strategy), "dash": ("solid", "dash", "dot")[tier % 3]},
            )
    if not figure.data:
        return None
    figure.update_xaxes(title_text="keystroke")
    figure.update_yaxes(title_text="MB", rangemode="tozero")
    return _styled(figure, height=360)


def _styled(figure: go.Figure, height: int) -> go.Figure:
    return figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 60, "r": 40, "t": 40, "b": 50},
        legend={"itemsizing": "constant"},
    )

"""The terminal report of a replay: one table with a column per strategy, and the errors."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lsp_server.filters.likely import SHORT
from midfill.replay.results import ReplayResult, Savings, StrategyResult, strategy_summary
from protocol.heat import SLACK_TOKENS

_SHOWN_ERRORS = 5

COLUMNS = (
    "strategy",
    "moves announced",
    "requests",
    "hot",
    "hot, one cursor",
    "recomputed tokens: mean",
    "recomputed tokens: p50",
    "recomputed tokens: p95",
    "recomputed tokens: p99",
    "tokens ahead: mean",
    "prompt tokens: mean",
    "ms: p50",
    "ms: p95",
    "ms: p99",
    "keystrokes saved",
    "suggestions taken per 100 keystrokes",
    "characters of these: mean",
    "new suggestions that are right",
    f"new suggestions of at most {SHORT} characters",
    "faulty suggestions",
    "errors",
)

LEGEND = (
    f"hot: recomputes at most {SLACK_TOKENS} tokens beyond those that the edit inserted; cold: "
    "recomputes the whole prompt; warm: in between. recomputed: computed between the keystroke and "
    "its suggestion; ahead: computed before the keystroke, when the cursor moved. p95: 95 of 100 "
    "requests have no more. ms: time to suggestion. saved: where the whole suggestion is what is typed "
    "next, one key takes it. faulty: repeats the text after the cursor, closes a bracket that is not "
    "open, or arrived after a newer edit."
)


def report(result: ReplayResult) -> RenderableType:
    """The table of a replay, for a rich console."""
    title = Text(f"{result.trace}: {result.model}, {result.mode}", style="bold")
    table = Table(show_header=False)
    table.add_column("")
    for _ in result.strategies:
        table.add_column(justify="right")
    for row in zip(COLUMNS, *map(summary_cells, result.strategies), strict=True):
        table.add_row(*row)
    return Group(title, table, Text(LEGEND, style="dim"), *_errors(result))


def summary_cells(result: StrategyResult) -> list[str]:
    """The formatted numbers of one strategy, in the order of `COLUMNS`."""
    numbers = strategy_summary(result)
    recomputed, times = numbers["recomputed_tokens"], numbers["time_to_suggestion_ms"]
    return [
        result.strategy,
        "yes" if result.moves_announced else "no",
        str(len(result.records)),
        f"{numbers['hot_share']:.1%}",
        f"{numbers['hot_share_single_cursor']:.1%}",
        f"{recomputed['mean']:.1f}",
        *(f"{recomputed[rank]:.0f}" for rank in ("p50", "p95", "p99")),
        f"{numbers['ahead_tokens_mean']:.1f}",
        f"{numbers['prompt_tokens_mean']:.0f}",
        *(f"{times[rank]:.1f}" for rank in ("p50", "p95", "p99")),
        *_savings(result.savings),
        f"{sum(numbers['faults'].values())} of {numbers['shown']}",
        str(numbers["errors"]),
    ]


def _savings(savings: Savings | None) -> list[str]:
    if savings is None:
        return ["-"] * 5
    return [
        f"{savings.keystrokes_share:.1%}",
        f"{savings.taken_per_100_keystrokes:.1f}",
        f"{savings.characters_taken:.1f}",
        f"{savings.right_share:.1%}",
        f"{savings.short_share:.1%}",
    ]


def _errors(result: ReplayResult) -> list[Text]:
    lines = []
    for strategy in result.strategies:
        lines += [Text(f"{strategy.strategy}: {remark}", style="yellow") for remark in strategy.remarks[:_SHOWN_ERRORS]]
        shown = strategy.errors[:_SHOWN_ERRORS]
        lines += [Text(f"{strategy.strategy}: {error}", style="red") for error in shown]
        if len(strategy.errors) > len(shown):
            lines.append(Text(f"{strategy.strategy}: {len(strategy.errors) - len(shown)} more errors", style="red"))
    return lines

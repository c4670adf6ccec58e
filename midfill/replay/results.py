"""Results of a replay: a record per request, their summary, and its report as table and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lsp_server.filters.likely import SHORT
from midfill.replay.trace import Step
from protocol.messages import SLACK_TOKENS, CacheOutcome

Mode = str  # "stdio", "engine" or "dry"
RANKS = (50, 95, 99)  # the percentiles of a report


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a replay: the edit before it, its cost, and its suggestion."""

    step: int
    single_cursor: bool
    inserted_tokens: int
    prompt_tokens: int
    recomputed_tokens: int
    prefetched_tokens: int  # recomputed by prefetches before this request, when the cursor moved
    milliseconds: float  # from the request to its answer, as the client sees it
    cache_outcome: CacheOutcome
    suggestion: str


@dataclass(frozen=True, slots=True)
class Savings:
    """The savings of a user who takes each suggestion that is what the session types next, with one keystroke each."""

    keystrokes_share: float  # saved, of all
    taken_per_100_keystrokes: float
    characters_taken: float  # of a suggestion that is taken, on average
    right_share: float  # of the suggestions that are new, not the rest of the one before: what is typed next
    short_share: float = 0.0  # of the new ones: of at most SHORT characters, white space at both ends left out


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """The records of one strategy, and its errors."""

    strategy: str
    records: tuple[Record, ...]
    errors: tuple[str, ...]
    savings: Savings | None  # None without a model
    moves_announced: bool = False  # whether moves before edits elsewhere were announced


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One replayed session, by strategy."""

    trace: str
    model: str
    mode: Mode
    strategies: tuple[StrategyResult, ...]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; 0 for no values."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99, rounded to three digits."""
    return {f"p{rank}": round(percentile(values, rank / 100), 3) for rank in RANKS}


def summary(result: ReplayResult) -> dict[str, Any]:
    """The JSON object of a replay."""
    return {
        "trace": result.trace,
        "model": result.model,
        "mode": result.mode,
        "requests": max((len(strategy.records) for strategy in result.strategies), default=0),
        "strategies": {strategy.strategy: strategy_summary(strategy) for strategy in result.strategies},
    }


def strategy_summary(result: StrategyResult) -> dict[str, Any]:
    """The JSON object of one strategy."""
    records = result.records
    recomputed = [record.recomputed_tokens for record in records]
    times = [record.milliseconds for record in records]
    return {
        "hit_share": _hit_share(records),
        "hit_share_single_cursor": _hit_share([record for record in records if record.single_cursor]),
        "recomputed_tokens": {"mean": _mean(recomputed), **percentiles(recomputed)},
        "prefetched_tokens_mean": _mean([record.prefetched_tokens for record in records]),
        "prompt_tokens_mean": _mean([record.prompt_tokens for record in records]),
        "time_to_suggestion_ms": percentiles(times),
        "savings": None if result.savings is None else asdict(result.savings),
        "errors": len(result.errors),
        "shown": sum(bool(record.suggestion) for record in records),
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0


def _hit_share(records: Sequence[Record]) -> float:
    return _mean([record.cache_outcome == "hit" for record in records])


def savings_of(steps: Sequence[Step], suggestions: Sequence[str]) -> Savings:
    """The keystrokes saved by accepting each suggestion that equals the next typed text.

    A keystroke is a step. `suggestions[i]` was shown after step i. If the session continues with exactly the whole
    suggestion, in one place and without a break, one keystroke accepts it instead.
    """
    covered = [_steps_covered(steps, index, suggestion) for index, suggestion in enumerate(suggestions)]
    index, saved, taken = 0, 0, []
    while index < len(steps):
        if covered[index] > 1:
            saved += covered[index] - 1
            taken.append(len(suggestions[index]))
        index += covered[index] + 1
    before = ("", *suggestions)
    new = [
        (right > 0, len(suggestion.strip()) <= SHORT)
        for right, suggestion, earlier in zip(covered, suggestions, before, strict=False)
        if suggestion and not (earlier and earlier.endswith(suggestion))
    ]
    count = max(len(steps), 1)
    return Savings(
        round(saved / count, 4),
        round(100 * len(taken) / count, 2),
        _mean(taken),
        _mean([right for right, _ in new]),
        _mean([short for _, short in new]),
    )


def _steps_covered(steps: Sequence[Step], index: int, suggestion: str) -> int:
    """How many steps after `index` type exactly the suggestion; 0 if they type something else."""
    rest, position = suggestion, steps[index].cursor
    for covered, step in enumerate(steps[index + 1 :], start=1):
        if not rest or not step.single_cursor:
            return 0
        edit = step.edits[0]
        if edit.start != position or edit.end != position or not edit.text or not rest.startswith(edit.text):
            return 0
        rest = rest[len(edit.text) :]
        position = step.cursor
        if not rest:
            return covered
    return 0


_SHOWN_ERRORS = 5

COLUMNS = (
    "strategy",
    "moves announced",
    "requests",
    "hits",
    "hits, one cursor",
    "recomputed tokens: mean",
    "recomputed tokens: p50",
    "recomputed tokens: p95",
    "recomputed tokens: p99",
    "prefetched tokens: mean",
    "prompt tokens: mean",
    "ms: p50",
    "ms: p95",
    "ms: p99",
    "keystrokes saved",
    "suggestions taken per 100 keystrokes",
    "characters of these: mean",
    "new suggestions that are right",
    f"new suggestions of at most {SHORT} characters",
    "errors",
)

LEGEND = (
    f"hit: recomputes at most {SLACK_TOKENS} tokens beyond those that the edit inserted; miss: "
    "recomputes the whole prompt; partial: in between. recomputed: computed between the keystroke and "
    "its suggestion; prefetched: computed before the keystroke, when the cursor moved. p95: 95 of 100 "
    "requests have no more. ms: time to suggestion. saved: where the whole suggestion is what is typed "
    "next, one key takes it."
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
        f"{numbers['hit_share']:.1%}",
        f"{numbers['hit_share_single_cursor']:.1%}",
        f"{recomputed['mean']:.1f}",
        *(f"{recomputed[rank]:.0f}" for rank in ("p50", "p95", "p99")),
        f"{numbers['prefetched_tokens_mean']:.1f}",
        f"{numbers['prompt_tokens_mean']:.0f}",
        *(f"{times[rank]:.1f}" for rank in ("p50", "p95", "p99")),
        *_savings(result.savings),
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
        shown = strategy.errors[:_SHOWN_ERRORS]
        lines += [Text(f"{strategy.strategy}: {error}", style="red") for error in shown]
        if len(strategy.errors) > len(shown):
            lines.append(Text(f"{strategy.strategy}: {len(strategy.errors) - len(shown)} more errors", style="red"))
    return lines

"""The results of a replay: a record per request, and the summary for terminal and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lsp_server.filters.likely import SHORT
from midfill.replay.faults import KINDS
from midfill.replay.trace import Step
from protocol.heat import Heat

Mode = str  # "stdio", "engine" or "dry"


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a replay: the edit before it, its cost, and its suggestion."""

    step: int
    single_cursor: bool
    inserted_tokens: int
    prompt_tokens: int
    recomputed_tokens: int
    ahead_tokens: int  # recomputed by ahead work before this request, when the cursor moved
    milliseconds: float  # from the request to its answer, as the client sees it
    heat: Heat
    suggestion: str


@dataclass(frozen=True, slots=True)
class Savings:
    """What a user saves who takes each suggestion that is what the session types next, with one keystroke each."""

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
    faults: Mapping[str, int] = field(default_factory=dict)  # suggestions by kind of fault
    remarks: tuple[str, ...] = ()  # the same, a text for each
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
        "hot_share": _hot_share(records),
        "hot_share_single_cursor": _hot_share([record for record in records if record.single_cursor]),
        "recomputed_tokens": {
            "mean": _mean(recomputed),
            **{f"p{rank}": percentile(recomputed, rank / 100) for rank in (50, 95, 99)},
        },
        "ahead_tokens_mean": _mean([record.ahead_tokens for record in records]),
        "prompt_tokens_mean": _mean([record.prompt_tokens for record in records]),
        "time_to_suggestion_ms": {f"p{rank}": round(percentile(times, rank / 100), 3) for rank in (50, 95, 99)},
        "savings": None if result.savings is None else asdict(result.savings),
        "errors": len(result.errors),
        "shown": sum(bool(record.suggestion) for record in records),
        "faults": {name: result.faults.get(kind, 0) for kind, name in KINDS.items()},
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0


def _hot_share(records: Sequence[Record]) -> float:
    return _mean([record.heat == "hot" for record in records])


def savings_of(steps: Sequence[Step], suggestions: Sequence[str]) -> Savings:
    """What is saved by accepting each suggestion that equals the next typed text.

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

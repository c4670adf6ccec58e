"""Results of a replay: a record per request with its faults, their summary, and its report as table and JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lsp_server.documents.documents import Document, Position, line_length
from lsp_server.documents.lexing import MOST_CHARS, surplus_closers
from lsp_server.filters.likely import SHORT
from midfill.headless.lsp_session import ShownSuggestion
from midfill.replay.trace import Step
from protocol.messages import SLACK_TOKENS, CacheOutcome

DUPLICATE = "repeats the text after the cursor"
CLOSERS = "closes a bracket that is not open"
OUTDATED = "belongs to an outdated document"
KINDS = {DUPLICATE: "duplicates", CLOSERS: "closers", OUTDATED: "outdated"}

_CLOSING = ")]}"
_SAYS_ENOUGH = 3  # word characters; a shorter repetition is no duplicate


def find_faults(document: Document, shown: ShownSuggestion) -> list[str]:
    """The faults of a suggestion for this document, of `KINDS`; empty if it has none."""
    line = document.lines[shown.end.line]
    behind = line[shown.end.column : line_length(line)]
    found = []
    if _says_rest_of_line(shown.text, behind) or _says_next_line(document, shown, behind):
        found.append(DUPLICATE)
    nothing = ShownSuggestion("", shown.start, shown.start)
    if any(closer in shown.text for closer in _CLOSING) and (
        _unmatched_closers(document, shown) > _unmatched_closers(document, nothing)
    ):
        found.append(CLOSERS)
    return found


def _says_rest_of_line(text: str, behind: str) -> bool:
    """Whether the text contains the rest of the line, or ends with its beginning."""
    rest = behind.strip()
    if _word_characters(rest) >= _SAYS_ENOUGH and rest in text:
        return True
    overlaps = (rest[:length] for length in range(1, len(rest) + 1) if text.endswith(rest[:length]))
    return any(_word_characters(overlap) >= _SAYS_ENOUGH for overlap in overlaps)


def _says_next_line(document: Document, shown: ShownSuggestion, behind: str) -> bool:
    """Whether one of the new lines equals the document's next line that is not blank."""
    below = (line.rstrip() for line in document.lines[shown.end.line + 1 :])
    next_line = next((line for line in below if line), "")
    head = document.lines[shown.start.line][: shown.start.column]
    lines = [line.rstrip() for line in re.split(r"\r\n|\n", head + shown.text + behind)]
    return _word_characters(next_line) >= _SAYS_ENOUGH and next_line in lines


def _unmatched_closers(document: Document, shown: ShownSuggestion) -> int:
    """Closing brackets without an opening one near the place, once the suggestion is accepted."""
    head = document.slice(Position(0, 0), shown.start)[-MOST_CHARS // 2 :]
    tail = document.slice(shown.end, document.end)[: MOST_CHARS // 2]
    return surplus_closers(head + shown.text + tail, document.language_id)


def _word_characters(text: str) -> int:
    return len(re.findall(r"\w", text))


Mode = str  # "stdio", "engine" or "dry"


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
        "hit_share": _hit_share(records),
        "hit_share_single_cursor": _hit_share([record for record in records if record.single_cursor]),
        "recomputed_tokens": {
            "mean": _mean(recomputed),
            **{f"p{rank}": percentile(recomputed, rank / 100) for rank in (50, 95, 99)},
        },
        "prefetched_tokens_mean": _mean([record.prefetched_tokens for record in records]),
        "prompt_tokens_mean": _mean([record.prompt_tokens for record in records]),
        "time_to_suggestion_ms": {f"p{rank}": round(percentile(times, rank / 100), 3) for rank in (50, 95, 99)},
        "savings": None if result.savings is None else asdict(result.savings),
        "errors": len(result.errors),
        "shown": sum(bool(record.suggestion) for record in records),
        "faults": {name: result.faults.get(kind, 0) for kind, name in KINDS.items()},
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
    "faulty suggestions",
    "errors",
)

LEGEND = (
    f"hit: recomputes at most {SLACK_TOKENS} tokens beyond those that the edit inserted; miss: "
    "recomputes the whole prompt; partial: in between. recomputed: computed between the keystroke and "
    "its suggestion; prefetched: computed before the keystroke, when the cursor moved. p95: 95 of 100 "
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
        f"{numbers['hit_share']:.1%}",
        f"{numbers['hit_share_single_cursor']:.1%}",
        f"{recomputed['mean']:.1f}",
        *(f"{recomputed[rank]:.0f}" for rank in ("p50", "p95", "p99")),
        f"{numbers['prefetched_tokens_mean']:.1f}",
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

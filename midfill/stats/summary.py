"""The statistics of a period, in total and by day, model and language, and how the table and the page write them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Literal

from lsp_server.usage.statistics import LATENCY_CLASSES_MS, Group, Statistics, total

Dimension = Literal["day", "model", "language"]

COLUMNS = ("shown", "accepted", "kept 30 s", "kept 10 min", "of your code", "hot", "p50 ms", "p95 ms")
LEGEND = (
    "Accepted: the share of shown suggestions that you accepted, whole or in part.",
    "Kept: the share of accepted characters that was still there later.",
    "Of your code: accepted characters in all that you typed or accepted.",
    "Hot: prompts of which at most 3 tokens more than the inserted ones were computed.",
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
            "hot_share": statistics.hot_share,
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
        percent(statistics.hot_share),
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

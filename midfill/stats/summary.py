"""The statistics of a period, in total and by day, model and language, with the figures that follow from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Literal

from lsp_server.usage.statistics import LATENCY_CLASSES_MS, Group, Statistics, total

Dimension = Literal["day", "model", "language"]


@dataclass(frozen=True, slots=True)
class Summary:
    """The statistics of a period; `typing_speed` is that of all time, in characters per second."""

    groups: Mapping[Group, Statistics]
    typing_speed: float | None

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
            "typing_speed": self.typing_speed,
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
            "time_saved_s": statistics.saved_s(self.typing_speed),
            "time_to_suggestion_ms": {f"p{rank}": statistics.latency_ms(rank / 100) for rank in (50, 95, 99)},
            "answers_by_ms": dict(zip([*map(str, LATENCY_CLASSES_MS), "more"], answers, strict=True)),
        }


def summary_of(groups: Mapping[Group, Statistics], days: int | None, today: date) -> Summary:
    """The summary of the last `days` days, today included; of all time if None."""
    since = (today - timedelta(days=days - 1)).isoformat() if days else ""
    chosen = {group: statistics for group, statistics in groups.items() if group.day >= since}
    return Summary(chosen, total(groups.values()).typing_speed)

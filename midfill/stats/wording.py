"""How the figures are written, in the table and on the page."""

from __future__ import annotations

from lsp_server.usage.statistics import LATENCY_CLASSES_MS, Statistics

COLUMNS = ("shown", "accepted", "kept 30 s", "kept 10 min", "of your code", "time saved", "hot", "p50 ms", "p95 ms")
LEGEND = (
    "Accepted: the share of shown suggestions that you accepted, whole or in part.",
    "Kept: the share of accepted characters that was still there later.",
    "Of your code: accepted characters in all that you typed or accepted.",
    "Hot: prompts of which at most 3 tokens more than the inserted ones were computed.",
    "p50, p95: the time from a request to its suggestion, at most.",
)


def cells(statistics: Statistics, typing_speed: float | None) -> tuple[str, ...]:
    """The figures of one row, in the order of COLUMNS."""
    return (
        f"{statistics.shown:,}",
        percent(statistics.acceptance_share),
        percent(statistics.kept_share_30s),
        percent(statistics.kept_share_10min),
        percent(statistics.written_share),
        duration(statistics.saved_s(typing_speed)),
        percent(statistics.hot_share),
        latency(statistics, 0.5),
        latency(statistics, 0.95),
    )


def percent(share: float | None) -> str:
    """A share from 0 to 1."""
    return "–" if share is None else f"{share:.0%}"


def duration(seconds: float | None) -> str:
    """A duration in its largest fitting unit."""
    if seconds is None:
        return "–"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{int(unit == 'h' and seconds < 10 * size)}f} {unit}"
    return f"{seconds:.0f} s"


def latency(statistics: Statistics, share: float) -> str:
    """The upper bound of a latency quantile in milliseconds."""
    if not any(statistics.answers):
        return "–"
    return str(statistics.latency_ms(share) or f">{LATENCY_CLASSES_MS[-1]}")


def saving(typing_speed: float | None) -> str:
    """How the saved time is estimated."""
    if typing_speed is None:
        return "Time saved is estimated once your typing speed is known, after about 200 typed characters."
    return (
        "Time saved is an estimate: characters kept after 10 min, divided by your typing speed without pauses, "
        f"{typing_speed:.1f} characters per second. Reading suggestions takes time, which it leaves out."
    )

"""The figures of one run of the demo, and their table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from midfill.demo.player import Keystroke
from midfill.replay.results import percentile
from protocol.heat import Heat
from protocol.settings import Strategy

# Calm where little was computed, warmer the more it was.
HEAT_STYLES: dict[Heat, str] = {"hot": "bold green", "warm": "bold yellow", "cold": "bold red"}


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one run. A request is a keystroke that was answered; ahead work is counted separately."""

    requests: int
    hot: int
    accepted: int
    undone: int
    computed: int  # requests that the core computed; the last suggestion answered the others
    prompt_tokens: int  # of all computed requests together
    recomputed_tokens: int
    ahead_tokens: int
    median_ms: float
    p95_ms: float

    @property
    def hot_share(self) -> float:
        return self.hot / self.requests if self.requests else 0.0

    @property
    def mean_recomputed(self) -> float:
        return self.recomputed_tokens / self.computed if self.computed else 0.0


def summarize(keystrokes: Sequence[Keystroke]) -> Summary:
    """The summary of a run, or of its beginning."""
    answered = [key for key in keystrokes if key.cost is not None and not key.cost.ahead]
    costs = [key.cost for key in answered if key.cost is not None]
    computed = [cost.usage for cost in costs if cost.source == "core"]
    times = [key.milliseconds for key in answered]
    return Summary(
        requests=len(answered),
        hot=sum(cost.heat == "hot" for cost in costs),
        accepted=sum(key.kind == "accept" for key in keystrokes),
        undone=sum(key.kind == "undo" for key in keystrokes),
        computed=len(computed),
        prompt_tokens=sum(usage.prompt_tokens for usage in computed),
        recomputed_tokens=sum(usage.recomputed_tokens for usage in computed),
        ahead_tokens=sum(key.cost.usage.recomputed_tokens for key in keystrokes if key.cost and key.cost.ahead),
        median_ms=statistics.median(times) if times else 0.0,
        p95_ms=percentile(times, 0.95),
    )


def report(summary: Summary, other_layouts: Mapping[Strategy, float], model: str, device: str) -> RenderableType:
    """The cost of the run, next to that of the same keys under other prompt layouts."""
    table = Table(
        title=f"model {model}, device {device}", title_justify="left", title_style="bold", box=None, show_header=False
    )
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="bright_black")
    typed = summary.requests - summary.computed
    reused = 1 - summary.recomputed_tokens / max(1, summary.prompt_tokens)
    hot = Text(f"{summary.hot_share:.1%}", style=HEAT_STYLES["hot"])
    table.add_row("keystrokes answered", str(summary.requests), f"{typed} typed as suggested")
    table.add_row("suggestions accepted", str(summary.accepted), f"{summary.undone} undone")
    table.add_row("hot", hot, "recomputed only the typed tokens")
    table.add_row("time to suggestion, median", f"{summary.median_ms:.0f} ms", f"p95 {summary.p95_ms:.0f} ms")
    table.add_row("prompt tokens that were resident", f"{reused:.2%}", f"of {summary.prompt_tokens:,}")
    table.add_row("computed ahead at cursor jumps", f"{summary.ahead_tokens:,} tokens", "before the next key")
    table.add_row(
        "recomputed per request to the core",
        f"{summary.mean_recomputed:.1f} tokens",
        "with EFIM (measured)",
        style="bold",
    )
    for strategy, mean in other_layouts.items():
        table.add_row("", f"{mean:.1f} tokens", f"with {strategy.upper()} (counted)")
    return table

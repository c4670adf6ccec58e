"""The tables of the demo's result."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from midfill.demo.summary import Summary
from midfill.demo.views import HEAT_STYLES
from protocol.settings import Strategy


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

"""The figures of one run of the demo."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from midfill.demo.player import Keystroke
from midfill.replay.results import percentile


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
        accepted=sum(key.press.accepted for key in keystrokes),
        undone=sum(key.press.undone for key in keystrokes),
        computed=len(computed),
        prompt_tokens=sum(usage.prompt_tokens for usage in computed),
        recomputed_tokens=sum(usage.recomputed_tokens for usage in computed),
        ahead_tokens=sum(key.cost.usage.recomputed_tokens for key in keystrokes if key.cost and key.cost.ahead),
        median_ms=statistics.median(times) if times else 0.0,
        p95_ms=percentile(times, 0.95),
    )

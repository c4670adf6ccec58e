"""Plays a recorded session through a real language server and a real core, key by key, as an editor would."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from midfill.headless.lsp_session import open_session
from midfill.headless.private_core import private_core_environment
from midfill.replay.results import percentile
from midfill.replay.targets import SessionTarget
from midfill.replay.trace import Step, Trace, play, read_trace, text_at

TRACE = Path(__file__).parents[1] / "tests" / "data" / "rustcode-3000-3400.json.gz"
RANKS = (50, 95, 99)
START_SECONDS = 300.0
MOVE_S = 0.25
"""Seconds from a cursor's move to the key there."""


@dataclass(frozen=True, slots=True)
class Session:
    """The played session: `limit` transactions of a trace from `start` on, after `warm_up` that are not counted."""

    trace: Trace
    language: str
    start: int
    limit: int
    warm_up: int
    max_new_tokens: int

    @classmethod
    def read(cls, path: Path, language: str, start: int, limit: int, warm_up: int, max_new_tokens: int) -> Session:
        """The session of a trace's file; BadTrace if it is none."""
        return cls(read_trace(path), language, start, limit, warm_up, max_new_tokens)

    @property
    def text(self) -> str:
        """The document before the first step."""
        return text_at(self.trace, self.start)

    def steps(self) -> Iterator[Step]:
        """The steps of the warm-up, then those to count."""
        return play(self.trace, self.start, self.warm_up + self.limit)


@asynccontextmanager
async def open_midfill(text: str, language: str, settings: Mapping[str, object]) -> AsyncIterator[SessionTarget]:
    """A language server with a core of its own, the document `text` open in it, and the model in memory.

    `settings` are those of an editor. Every suggestion is shown, and requests go to the core without debounce, since a
    replay does not pause between keys as a typist does.
    """
    given = {"holdBackPercent": 0, "debounceMs": 0, "otherFiles": False, **settings}
    with private_core_environment() as environment:
        command = [sys.executable, "-m", "midfill", "lsp"]
        async with open_session(command, settings=given, environment=environment) as session:
            target = SessionTarget(session, language, text)
            await session.wait_until_ready(START_SECONDS)
            yield target


def parts_of(trace: Trace, count: int) -> Iterator[Trace]:
    """The trace from as many places on, evenly spread; keys of one and the same time are spread over its second."""
    times = spread(trace.times)
    stride, text = len(trace.transactions) // count, trace.start
    for number in range(count):
        own = slice(number * stride, None)
        rest = Trace(trace.name, text, None, trace.transactions[own], times[own])
        yield rest
        text = text_at(rest, stride)


def spread(times: Sequence[float]) -> tuple[float, ...]:
    """The times, with those of one and the same moment spread over the second from there on."""
    alike = Counter(times)
    done: Counter[float] = Counter()
    spread_out = []
    for moment in times:
        spread_out.append(moment + done[moment] / alike[moment])
        done[moment] += 1
    return tuple(spread_out)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99, rounded."""
    return {f"p{rank}": round(percentile(values, rank / 100), 3) for rank in RANKS}


def machine() -> str:
    """A description of this machine, as far as Python knows it."""
    return platform.processor() or platform.machine()

"""Plays a recorded session through a real language server and a real core, key by key, as an editor would."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from midfill.headless.environment import private_core_environment
from midfill.headless.lsp_session import LANGUAGE_SERVER, open_session
from midfill.replay.player import SessionTarget
from midfill.replay.trace import Step, Trace, play, text_at

TRACE = Path(__file__).parents[1] / "tests" / "data" / "rustcode-3000-3400.json.gz"
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

    @property
    def text(self) -> str:
        """The document before the first step."""
        return text_at(self.trace, self.start)

    def steps(self) -> Iterator[Step]:
        """The steps of the warm-up, then those to count."""
        return play(self.trace, self.start, self.warm_up + self.limit)


@asynccontextmanager
async def open_midfill(played: Session, settings: Mapping[str, object]) -> AsyncIterator[SessionTarget]:
    """A language server with a core of its own, the session's document open in it, and the model in memory.

    `settings` are those of an editor. Every suggestion is shown whole, and requests go to the core without
    debounce, since a replay does not pause between keys as a typist does.
    """
    shown = {"holdBackPercent": 0, "shortenUnlikely": False, "maxTokens": played.max_new_tokens}
    given = {**shown, "debounceMs": 0, "otherFiles": False, **settings}
    with private_core_environment() as environment:
        async with open_session(LANGUAGE_SERVER, settings=given, environment=environment) as session:
            target = SessionTarget(session, played.language, played.text)
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

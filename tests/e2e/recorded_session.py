"""A recorded session that the tests type into editors, with a model that offers what it does next, or deletes lines.

`TEST_TRACE` names a longer session, with times: of that, the first half hour is typed. `TEST_FIRST` is how many
transactions are done already. As a program it serves the model for a test in another language: its first line of output
says where, and what to type; each line of its input is how many transactions are done.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise
from pathlib import Path

from midfill.replay.trace import Patch, read_trace
from protocol.messages import CompletionRequest
from tests.lsp_server.fake_core import FakeCore, says

TRACE = Path(os.environ.get("TEST_TRACE", Path(__file__).parents[1] / "data" / "rustcode-3000-3400.json.gz"))
FIRST = int(os.environ.get("TEST_FIRST", "0"))
SECONDS, PAUSE_S, LONGEST_PAUSE_S = 1800.0, 3.0, 30.0  # no pause counts as longer
WITHOUT_TIMES, KEYS_BETWEEN_PAUSES = 160, 5  # of a session without times
AHEAD = 12  # transactions that the model predicts at most
SERVER = """
import lsp_server.next_edit.gate as gate
gate.FIRST_BACK_OFF_S = gate.LONGEST_BACK_OFF_S = 0.05
from midfill.__main__ import main
main()
"""
"""The language server: what is refused is not held against the model for long."""


@dataclass(frozen=True)
class Session:
    """The transactions, whether the user rests behind each, and the texts before and behind each."""

    transactions: tuple[tuple[Patch, ...], ...]
    rests: tuple[bool, ...]
    texts: tuple[str, ...]


def read_session() -> Session:
    trace = read_trace(TRACE)
    if trace.times:
        pauses = [later - time for time, later in pairwise(trace.times)]
        count = sum(total < SECONDS for total in accumulate(min(pause, LONGEST_PAUSE_S) for pause in pauses))
        rests = tuple(pause >= PAUSE_S for pause in pauses[:count])
    else:
        count = WITHOUT_TIMES
        rests = tuple(number % KEYS_BETWEEN_PAUSES == 0 for number in range(count))
    texts = tuple(accumulate(trace.transactions[:count], apply, initial=trace.start))
    return Session(trace.transactions[FIRST:count], rests[FIRST:], texts[FIRST:])


def apply(text: str, patches: tuple[Patch, ...]) -> str:
    for position, deleted, inserted in patches:
        text = text[:position] + inserted + text[position + deleted :]
    return text


class Model:
    """Predicts the states that the session comes to, and deletes lines at every third request."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts, self.now = texts, 0  # the number of transactions that are done
        self._deletes = cycle([False, True, False])
        self._places = cycle(range(7))

    async def answer(self, request: CompletionRequest) -> str:
        region, text = request.copies, self.texts[self.now] + "\n"  # a region's last line always ends
        begin = text.find(region)
        if begin < 0:
            return region
        if next(self._deletes):
            lines = region.splitlines(keepends=True)
            at = next(self._places) % len(lines)
            return "".join(lines[:at] + lines[at + 2 :])
        above, below = text[:begin], text[begin + len(region) :]
        for state in (state + "\n" for state in self.texts[self.now + AHEAD : self.now : -1]):
            if len(state) >= len(above) + len(below) and state.startswith(above) and state.endswith(below):
                return state[len(above) : len(state) - len(below)]
        return region


@contextmanager
def cores(model: Model) -> Iterator[tuple[FakeCore, FakeCore]]:
    """A core that completes nothing, and one of the model, in a thread of their own."""
    completions, edits = FakeCore(), FakeCore()
    completions.answer, edits.answer = says(""), model.answer
    started, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with completions.listening(), edits.listening():
            started.set()
            await ended.wait()

    loop: asyncio.AbstractEventLoop | None = None
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield completions, edits
    finally:
        assert loop is not None
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def main() -> None:
    session = read_session()
    model = Model(session.texts)
    with cores(model) as (completions, edits):
        about = {"completions": completions.url, "edits": edits.url, "start": session.texts[0]}
        about |= {"transactions": session.transactions, "rests": session.rests}
        sys.stdout.write(json.dumps(about) + "\n")
        sys.stdout.flush()
        for line in sys.stdin:
            model.now = int(line)


if __name__ == "__main__":
    main()

"""The requests at work, and which of them share the next forward: short chunks always, long prompts in turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from inference.backends.model import Choice, Chunk
from inference.engine.request import Request
from inference.engine.short_prompts import PrefillSpeed
from inference.engine.writer import Steps
from protocol.messages import Completion

SMALL_CHUNK = 32
"""Chunks of up to this many tokens join every forward; longer ones take turns."""

SHARED_CHUNK = 2 * SMALL_CHUNK
"""While several users are active, the chunks of a long prompt are multiples of this many tokens."""

SHARED_CHUNK_S = 0.01
"""Intended duration of a forward with such a chunk, which bounds the wait of another user's keystroke."""

ALONE_CHUNK_S = 0.02
"""Intended duration of a forward with a long chunk while only one user is active, where chunks may grow."""

PREFETCH_CHUNK_S = 0.1
"""Longest intended duration of a forward of a prefetch, which bounds the wait of the next keystroke."""

ACTIVE_S = 5.0
"""Seconds after its last request during which a user counts as active."""


class Run:
    """A request at work: its steps, and the chunk that it waits for. It has ended when it has no chunk."""

    def __init__(self, request: Request, steps: Steps[Completion]) -> None:
        self.request = request
        self.chunk: Chunk | None = None
        self._steps = steps
        self._go_on(partial(next, steps))

    def resume(self, choices: tuple[Choice, ...]) -> None:
        """Continue with the choices of its chunk, up to the next chunk or the end."""
        self._go_on(partial(self._steps.send, choices))

    def end(self, reason: Exception) -> None:
        """End it before its chunk is computed: `reason` is Stopped if it is unwanted, else the error."""
        self._go_on(partial(self._steps.throw, reason))

    def _go_on(self, go: Callable[[], Chunk]) -> None:
        try:
            self.chunk = go()
        except StopIteration as end:
            self.chunk, self.request.outcome = None, end.value
        except Exception as error:  # noqa: BLE001 - reported to this request's client; other requests continue
            self.chunk, self.request.outcome = None, error


class ChunkScheduler:
    """The requests at work, in the order of turns of their long chunks.

    A forward takes at most one long chunk. The turn passes from user to user, and within a user from request to
    request. While short chunks of other users are at work, a long chunk also waits until forwards without one have
    taken as long as the last forward with one, so that one user's long prompts at most double the time of another
    user's keystrokes. The chunks themselves are shorter while several users are active; while one is, they grow
    with the measured speed up to `most_tokens`.
    """

    def __init__(self, chunk_tokens: int, most_tokens: int = 0, speed: PrefillSpeed | None = None) -> None:
        """`speed` notes the forwards with a long chunk."""
        self.runs: list[Run] = []
        self._speed = speed
        self._chunk_tokens = chunk_tokens  # of a long prompt, while only one user is active, unless it may grow
        self._most_tokens = max(chunk_tokens, most_tokens)
        self._full_tokens_per_s = 0.0  # of the last forward with a long chunk of at least `_chunk_tokens`
        self._began: dict[str, float] = {}  # user, or client without one -> when it last began a request
        self._tokens_per_s = math.inf  # of the last forward with a long chunk
        self._long_chunk_tokens = 0  # in the forward that `next` has chosen
        self._owed_s = 0.0  # time that forwards without a long chunk must take before the next one with it

    def note_user(self, user: str, now: float) -> None:
        """Record that a user (`Request.turn`) began a request, and drop those that are no longer active."""
        self._began = {name: began for name, began in self._began.items() if now - began < ACTIVE_S} | {user: now}

    def chunk_tokens(self, user: str, now: float, *, prefetch: bool = False) -> int:
        """Maximum number of tokens in the next chunk of a user's long prompt, `prefetch` if no user waits for it."""
        most = self._chunk_tokens_for(user, now)
        if not prefetch:
            return most
        affordable = int(min(self._tokens_per_s * PREFETCH_CHUNK_S, most))
        return min(most, max(affordable // SHARED_CHUNK, 1) * SHARED_CHUNK)

    def _chunk_tokens_for(self, user: str, now: float) -> int:
        if not any(name != user and now - began < ACTIVE_S for name, began in self._began.items()):
            fast = int(self._full_tokens_per_s * ALONE_CHUNK_S) // SHARED_CHUNK * SHARED_CHUNK
            return max(self._chunk_tokens, min(fast, self._most_tokens))
        affordable = min(self._tokens_per_s * SHARED_CHUNK_S, self._chunk_tokens)
        return min(max(int(affordable) // SHARED_CHUNK, 1) * SHARED_CHUNK, self._chunk_tokens)

    def next(self) -> list[Run]:
        """The requests whose chunks go into the next forward; prefetches only if there is nothing else."""
        runs = [run for run in self.runs if not run.request.is_prefetch] or self.runs
        short = [run for run in runs if not _is_long(run)]
        turn = next((run for run in runs if _is_long(run) and not self._has_to_wait(run, short)), None)
        self._long_chunk_tokens = 0 if turn is None or turn.chunk is None else len(turn.chunk.token_ids)
        if turn is None:
            return short
        self.runs = sorted(self.runs, key=lambda run: (run.request.turn == turn.request.turn, run is turn))
        return [run for run in runs if run is turn or run in short]

    def took(self, seconds: float) -> None:
        """Record the duration of the forward whose requests `next` has chosen."""
        if self._long_chunk_tokens:
            self._owed_s = seconds
            self._tokens_per_s = self._long_chunk_tokens / max(seconds, 1e-9)
            if self._speed is not None:
                self._speed.note(self._long_chunk_tokens, seconds)
            if self._long_chunk_tokens >= self._chunk_tokens:
                self._full_tokens_per_s = self._tokens_per_s
        else:
            self._owed_s = max(0.0, self._owed_s - seconds)

    def take_ended(self) -> list[Request]:
        ended = [run.request for run in self.runs if run.chunk is None]
        self.runs = [run for run in self.runs if run.chunk is not None]
        return ended

    def _has_to_wait(self, run: Run, short: list[Run]) -> bool:
        return self._owed_s > 0 and any(other.request.turn != run.request.turn for other in short)


def _is_long(run: Run) -> bool:
    return run.chunk is not None and len(run.chunk.token_ids) > SMALL_CHUNK

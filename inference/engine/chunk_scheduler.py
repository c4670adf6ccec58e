"""The requests at work, and which of them share the next forward: keystrokes always, extra work as far as it fits."""

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
"""A keystroke's chunks have up to this many tokens. While several users are active, longer ones are multiples of it."""

LONG_CHUNK = 2 * SMALL_CHUNK
"""While one user is active, the chunks of a long prompt are multiples of this many tokens."""

SHARED_CHUNK_S = 0.01
"""Intended duration of the extra work in a forward, which bounds the wait of another user's keystroke."""

ALONE_CHUNK_S = 0.04
"""While only one user is active, long chunks double, where they may grow, as long as a forward takes no longer."""

PREFETCH_CHUNK_S = 0.1
"""Longest intended duration of a forward of a prefetch, which bounds the wait of the next keystroke."""

ACTIVE_S = 5.0
"""Seconds after its last request during which a user counts as active."""

LIGHT_TOKENS = 64
"""Generated tokens up to which a request counts as a keystroke's: about as many as editors ask for."""

KEYS_SHARE = 3
"""While another user's keystroke is at work, extra work adds at most a third to what its forwards take."""


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
    """The requests at work, in the order of turns of their extra work.

    A forward takes the chunk of each user's first light request: one that decodes a text of usual length. All else is
    extra work: long prompts, a user's further requests, several or very long texts. Its turn passes from user to user,
    and within a user from request to request; a forward takes at most one long chunk. What extra work adds to a forward
    is owed by its user to the keystrokes of others: beside these, the user's next extra work waits until other forwards
    have taken KEYS_SHARE times as long. So a user who asks for much delays others by little, and by one chunk at first.
    Debts end once no request is at work.

    While several users are active, the extra work of a forward takes about SHARED_CHUNK_S by the measured speed; while
    one is, the chunks of long prompts grow as far as forwards stay short, up to `most_tokens`.
    """

    def __init__(self, chunk_tokens: int, most_tokens: int = 0, speed: PrefillSpeed | None = None) -> None:
        """`speed` notes the forwards with a long chunk."""
        self.runs: list[Run] = []
        self._speed = speed
        self._chunk_tokens = chunk_tokens  # of a long prompt, while only one user is active, unless it may grow
        self._most_tokens = max(chunk_tokens, most_tokens)
        self._alone_tokens = chunk_tokens  # the same, as grown
        self._began: dict[str, float] = {}  # user, or client without one -> when it last began a request
        self._tokens_per_s = math.inf  # of the last forward with a long chunk
        self._light: tuple[Run, ...] = ()  # in the forward that `next` has chosen, and what it has beside them:
        self._extra: list[Run] = []
        self._owing: set[str] = set()  # users of that extra work beside whom others are active
        self._light_s = 0.0  # duration of the last forward without extra work
        self._owed_s: dict[str, float] = {}  # by user: time that forwards must take without extra work of theirs

    def note_user(self, user: str, now: float) -> None:
        """Record that a user (`Request.turn`) began a request, and drop those that are no longer active."""
        if not self.runs:
            self._owed_s.clear()  # nobody waits for it
        self._began = {name: began for name, began in self._began.items() if now - began < ACTIVE_S} | {user: now}

    def chunk_tokens(self, user: str, now: float, *, prefetch: bool = False) -> int:
        """Maximum number of tokens in the next chunk of a user's long prompt, `prefetch` if no user waits for it."""
        most = self._chunk_tokens_for(user, now)
        if not prefetch:
            return most
        affordable = int(min(self._tokens_per_s * PREFETCH_CHUNK_S, most))
        return min(most, max(affordable // LONG_CHUNK, 1) * LONG_CHUNK)

    def _chunk_tokens_for(self, user: str, now: float) -> int:
        if not self._others_are_active(user, now):
            return self._alone_tokens
        affordable = min(self._tokens_per_s * SHARED_CHUNK_S, self._chunk_tokens)
        return min(max(int(affordable) // SMALL_CHUNK, 1) * SMALL_CHUNK, self._chunk_tokens)

    def _others_are_active(self, user: str, now: float) -> bool:
        return any(name != user and now - began < ACTIVE_S for name, began in self._began.items())

    def next(self, now: float) -> list[Run]:
        """The requests whose chunks go into the next forward; prefetches only if there is nothing else."""
        runs = [run for run in self.runs if not run.request.is_prefetch] or self.runs
        light: dict[str, Run] = {}
        for run in filter(_is_light, runs):
            light.setdefault(run.request.turn, run)
        extra, tokens, has_long = list[Run](), 0, False
        for run in runs:
            user = run.request.turn
            waits = self._owed_s.get(user, 0.0) > 0 and light.keys() - {user}
            if run is light.get(user) or waits or (has_long and _is_long(run)):
                continue
            tokens += _tokens(run)
            if extra and self._others_are_active(user, now) and tokens > self._chunk_tokens_for(user, now):
                break
            extra.append(run)
            has_long |= _is_long(run)
        users = {run.request.turn for run in extra}
        self._owing = {user for user in users if light.keys() - {user} or self._others_are_active(user, now)}
        self.runs.sort(key=lambda run: (run.request.turn in users, run in extra))
        self._extra, self._light = extra, tuple(light.values())
        return [*self._light, *extra]

    def took(self, seconds: float) -> None:
        """Record the duration of the forward whose requests `next` has chosen."""
        if not self._extra:
            self._light_s = seconds
        elif self._light:  # something is always owed, so that a forward without extra work measures anew
            self._light_s = min(self._light_s, seconds * KEYS_SHARE / (KEYS_SHARE + 1))
        added_s = seconds - self._light_s if self._light else seconds
        left = {user: owed_s - seconds for user, owed_s in self._owed_s.items() if owed_s > seconds}
        self._owed_s = left | dict.fromkeys(self._owing, KEYS_SHARE * added_s)
        tokens = sum(_tokens(run) for run in self._extra if _is_long(run))
        if tokens < SMALL_CHUNK:
            return
        self._tokens_per_s = tokens / max(seconds, 1e-9)
        if self._speed is not None:
            self._speed.note(tokens, seconds)
        # A GPU takes as long for 2,000 tokens as for 200 where its CPU launches kernels slowly: no speed tells that.
        if tokens >= self._alone_tokens and seconds <= ALONE_CHUNK_S:
            self._alone_tokens = min(2 * self._alone_tokens, self._most_tokens)
        elif tokens >= self._alone_tokens and seconds > 2 * ALONE_CHUNK_S:
            self._alone_tokens = max(self._alone_tokens // 2, self._chunk_tokens)

    def take_ended(self) -> list[Request]:
        ended: list[Request] = []
        for run in tuple(self.runs):
            if run.chunk is None:
                self.runs.remove(run)
                ended.append(run.request)
        return ended


def _tokens(run: Run) -> int:
    return 0 if run.chunk is None else len(run.chunk.token_ids)


def _is_long(run: Run) -> bool:
    """Whether it is part of a prompt, and not its short rest."""
    return run.chunk is not None and (len(run.chunk.token_ids) > SMALL_CHUNK or not run.chunk.wanted)


def _is_light(run: Run) -> bool:
    request = run.request
    return not (_is_long(run) or request.writes_several or request.cost.generated_tokens > LIGHT_TOKENS)

"""One request at work in the engine: its pending chunk, and finally its answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from inference.backends.chunk import Chunk
from inference.backends.model import Choice
from protocol.messages import Completion, CompletionRequest

Result = TypeVar("Result")
IsCancelled = Callable[[], bool]
OnPrefill = Callable[[int, int], None]
"""Receives, after each forward of a prompt but the last, how many of its tokens are resident, and how many it has."""
OnText = Callable[[str], None]
"""Receives the text so far after each forward that added to it: every text begins with the one before it, and the
completion's with all of them, except that a request that gave way and resumes begins with an empty text again."""
Steps = Generator[Chunk, tuple[Choice, ...], Result]
"""Yields a chunk for each forward and receives its choices; the engine throws Stopped into it to end it early."""


class Stopped(Exception):
    """The request was cancelled."""


class EngineRequest:
    """A request at work in an engine, until it has an outcome."""

    outcome: Completion | Exception | None = None

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None

    def completion(self) -> Completion:
        """The completion of an ended request; raises the error that ended it, if any."""
        if isinstance(self.outcome, Completion):
            return self.outcome
        assert self.outcome is not None, "the request has not ended"
        raise self.outcome


class ActiveRequest(EngineRequest):
    """A request at work; it has ended when it has no pending chunk."""

    def __init__(
        self, request: CompletionRequest, cancelled: IsCancelled, steps: Steps[Completion], client: str = ""
    ) -> None:
        self.request = request
        self.client = client
        self.cancelled = cancelled
        self.chunk: Chunk | None = None
        self._steps = steps
        self._go_on(partial(next, steps))

    @property
    def is_ahead_work(self) -> bool:
        """Whether it only makes a prompt resident, without a user waiting."""
        return self.request.max_tokens == 0

    @property
    def failure(self) -> Exception | None:
        return self.outcome if isinstance(self.outcome, Exception) else None

    def resume(self, choices: tuple[Choice, ...]) -> None:
        """Continue with the choices of its chunk, up to the next chunk or the end."""
        self._go_on(partial(self._steps.send, choices))

    def end(self, reason: Exception) -> None:
        """End it before its chunk is computed: `reason` is Stopped if it was cancelled, else the error."""
        self._go_on(partial(self._steps.throw, reason))

    def _go_on(self, go: Callable[[], Chunk]) -> None:
        try:
            self.chunk = go()
        except StopIteration as end:
            self.chunk, self.outcome = None, end.value
        except Exception as error:  # noqa: BLE001 - reported to this request's client; other requests continue
            self.chunk, self.outcome = None, error

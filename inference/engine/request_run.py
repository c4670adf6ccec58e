"""One request at work in the engine: the chunk that it waits for, and in the end its answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from inference.backends.chunk import Chunk
from inference.backends.model import Choice
from protocol.messages import Completion, CompletionRequest

Result = TypeVar("Result")
Cancelled = Callable[[], bool]
Steps = Generator[Chunk, tuple[Choice, ...], Result]
"""Yields the chunk that it needs a forward for, and gets its choices; Stopped is raised in it to end it early."""


class Stopped(Exception):
    """Nobody wants the answer any more."""


class Run:
    """A request that has been begun; it has ended when it waits for no chunk."""

    def __init__(
        self, request: CompletionRequest, cancelled: Cancelled, steps: Steps[Completion], client: str = ""
    ) -> None:
        self.request = request
        self.client = client
        self.cancelled = cancelled
        self.chunk: Chunk | None = None
        self._steps = steps
        self._outcome: Completion | Exception | None = None
        self._go_on(partial(next, steps))

    @property
    def has_ended(self) -> bool:
        return self.chunk is None

    @property
    def is_ahead_work(self) -> bool:
        """Whether it only makes a prompt resident, and nobody waits for it."""
        return self.request.max_tokens == 0

    @property
    def failure(self) -> Exception | None:
        """The error that ended it."""
        return self._outcome if isinstance(self._outcome, Exception) else None

    def resume(self, choices: tuple[Choice, ...]) -> None:
        """The forward of its chunk is done: work on to the next one, or to the end."""
        self._go_on(partial(self._steps.send, choices))

    def end(self, reason: Exception) -> None:
        """End it before its chunk is computed: Stopped where nobody wants it, or what went wrong."""
        self._go_on(partial(self._steps.throw, reason))

    def completion(self) -> Completion:
        """The answer of a run that has ended; raises the error that it met instead."""
        if isinstance(self._outcome, Completion):
            return self._outcome
        assert self._outcome is not None, "the run has not ended"
        raise self._outcome

    def _go_on(self, go: Callable[[], Chunk]) -> None:
        try:
            self.chunk = go()
        except StopIteration as end:
            self.chunk, self._outcome = None, end.value
        except Exception as error:  # noqa: BLE001 - it is told to whoever asked; the others go on
            self.chunk, self._outcome = None, error

"""Measures what a prompt and a token cost on this machine, one forward at a time, so that it can give way."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from statistics import median

from inference.backends.chunk import Chunk
from inference.backends.model import Model

PROMPT_TOKENS = 512
_CHUNK_TOKENS = 128  # a keystroke waits for one forward
_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Speed:
    """Milliseconds for a prompt of PROMPT_TOKENS, and for one token behind it."""

    prompt_ms: float
    token_ms: float

    def __str__(self) -> str:
        return f"{PROMPT_TOKENS} prompt tokens in {self.prompt_ms / 1e3:.2g} s, a token in {self.token_ms:.2g} ms"

    def best_of(self, other: Speed | None) -> Speed:
        """The shorter times of both: other programs can only lengthen them."""
        if other is None:
            return self
        return Speed(min(self.prompt_ms, other.prompt_ms), min(self.token_ms, other.token_ms))


def can_measure(model: Model) -> bool:
    """Whether the model's context holds the test, and chunks may begin anywhere (not so in exact mode)."""
    return model.alignment == 1 and model.context_tokens >= PROMPT_TOKENS + _TOKENS


def measure_speed(model: Model, clock: Callable[[], float]) -> Generator[None, None, Speed]:
    """Run one forward per step, in a workspace of its own, and return the speed.

    `clock` returns seconds. Raises MemoryError if there is no room for the workspace.
    """
    workspace = model.new_workspace()
    chunks = [(start, _CHUNK_TOKENS) for start in range(0, PROMPT_TOKENS, _CHUNK_TOKENS)]
    took = []
    for start, count in (*chunks, *((PROMPT_TOKENS + number, 1) for number in range(_TOKENS))):
        began = clock()
        model.forward([Chunk([0] * count, start, workspace, wanted=1)])
        took.append((clock() - began) * 1e3)
        yield
    return Speed(sum(took[: len(chunks)]), median(took[len(chunks) :]))

"""Checks that reuse changed no suggestion: computes a sample of a replay's requests again, cold."""

from __future__ import annotations

from msgspec.structs import replace

from inference.engine.interface import AnyEngine
from protocol.errors import MidfillError
from protocol.messages import Completion, CompletionRequest


class SuggestionDiffers(MidfillError):
    """A completion from resident KV differs from a cold engine's."""

    code = "suggestion_differs"


class Verifier:
    """Selects `count` of `total` steps, evenly spread, and compares their completions with a cold engine's.

    A selected step without a request to the core is replaced by the next step with one.
    """

    def __init__(self, engine: AnyEngine, count: int, total: int) -> None:
        self._engine = engine
        self._due = 0
        self._last: CompletionRequest | None = None
        self._wanted = {index * total // min(count, total) for index in range(min(count, total))}

    def wants(self, number: int) -> bool:
        """Whether to check the core's last completion after this step; call it once for every step."""
        self._due += number in self._wanted
        return self._due > 0

    def check(self, exchange: tuple[CompletionRequest, Completion] | None) -> None:
        """Raise SuggestionDiffers, with both texts, if the completion differs from a cold engine's."""
        if exchange is None or exchange[0] == self._last:
            return
        self._due -= 1
        request, warm = exchange
        self._last = request
        cold = self._engine.complete(replace(request, reuse=False))
        if (warm.text, warm.finish_reason) != (cold.text, cold.finish_reason):
            raise SuggestionDiffers(f"with reuse {warm.text!r} ({warm.finish_reason}), cold {cold.text!r}")

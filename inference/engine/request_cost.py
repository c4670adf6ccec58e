"""Counts what a request costs while it is at work, and reports it with the completion."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from protocol.messages import Alternative, Completion, FinishReason, Usage


@dataclass(slots=True)
class RequestCost:
    """The cost of one request so far."""

    prompt_tokens: int
    recomputed_tokens: int = 0
    forwards: int = 0  # that included a chunk of this request
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    started: float = field(default_factory=time.perf_counter)
    prepared: float | None = None
    prefilled: float | None = None
    logprobs: list[float] = field(default_factory=list)
    alternative_tokens: int = 0  # generated for alternatives

    def completion(self, text: str, reason: FinishReason, alternatives: tuple[Alternative, ...] = ()) -> Completion:
        """The completion, with its cost."""
        now = time.perf_counter()
        prepared = now if self.prepared is None else self.prepared
        prefilled = now if self.prefilled is None else self.prefilled
        generated = len(self.logprobs)
        usage = Usage(
            prompt_tokens=self.prompt_tokens,
            recomputed_tokens=self.recomputed_tokens,
            generated_tokens=generated + self.alternative_tokens,
            forwards=self.forwards,
            queue_ms=0.0,
            prefill_ms=(prefilled - prepared) * 1e3,
            decode_ms=(now - prefilled) * 1e3,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            prepare_ms=(prepared - self.started) * 1e3,
        )
        return Completion(text, reason, usage, self.mean_logprob, alternatives)

    @property
    def mean_logprob(self) -> float | None:
        """Of the tokens generated; None without any."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else None

    def add(self, alternative: RequestCost, known: int) -> None:
        """Add the cost of an alternative, but for what it recomputes of the prompt: that counts already.

        known: its first tokens that were not generated for it.
        """
        self.forwards += alternative.forwards
        self.drafted_tokens += alternative.drafted_tokens
        self.accepted_tokens += alternative.accepted_tokens
        self.alternative_tokens += len(alternative.logprobs) - known

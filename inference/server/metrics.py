"""Counts the core's requests and tokens since its start, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from inference.scheduling.job_queue import Outcome
from kv_store.interface import StoreStats
from protocol.errors import Busy, Cancelled
from protocol.messages import Completion, CompletionRequest, Usage

_SUMS = {
    "prompt_tokens": "Tokens of prompts.",
    "recomputed_tokens": "Prompt tokens that the model computed, because they were not resident.",
    "generated_tokens": "Tokens of completions.",
    "drafted_tokens": "Draft tokens that a forward verified.",
    "accepted_tokens": "Accepted draft tokens, each of which saved a forward.",
    "forwards": "Forwards that requests took part in; one that two requests share counts twice.",
}
_PHASES = ("queue", "prepare", "prefill", "decode")


class Metrics:
    """Thread-safe counters."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "midfill_requests",
            "Requests answered, by kind (suggestion, ahead) and outcome.",
            ("kind", "outcome"),
            registry=self._registry,
        )
        self._sums = {name: Counter(f"midfill_{name}", text, registry=self._registry) for name, text in _SUMS.items()}
        self._seconds = Counter(
            "midfill_seconds", "Time spent on completed requests, by phase.", ("phase",), registry=self._registry
        )
        self._connections = self._gauge("connections", "Open WebSocket connections.")
        self._loaded = self._gauge("model_loaded", "Whether the model is in memory.")
        self._tokens = self._gauge("resident_tokens", "Tokens whose KV is in the store, by tier.", "tier")
        self._bytes = self._gauge("resident_bytes", "Bytes of KV in the store, by tier.", "tier")

    def observe(self, request: CompletionRequest, answer: Outcome) -> None:
        """Count one answered request."""
        kind = "ahead" if request.max_tokens == 0 else "suggestion"
        self._requests.labels(kind, _outcome(answer)).inc()
        if isinstance(answer, Completion):
            self._add(answer.usage)

    def render(self, connections: int, model_loaded: bool, residency: StoreStats | None) -> str:
        """All counters in Prometheus' text format, with the current gauges."""
        self._connections.set(connections)
        self._loaded.set(model_loaded)
        self._tokens.clear()
        self._bytes.clear()
        for tier in residency.tiers if residency is not None else ():
            self._tokens.labels(tier.name).set(tier.tokens)
            self._bytes.labels(tier.name).set(tier.used_bytes)
        return generate_latest(self._registry).decode()

    def _add(self, usage: Usage) -> None:
        for name, counter in self._sums.items():
            counter.inc(getattr(usage, name))
        for phase in _PHASES:
            self._seconds.labels(phase).inc(getattr(usage, f"{phase}_ms") / 1e3)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"midfill_{name}", text, labels, registry=self._registry)


def _outcome(answer: Outcome) -> str:
    if isinstance(answer, Completion):
        return "completed"
    if isinstance(answer, Busy):
        return "refused"
    return "cancelled" if isinstance(answer, Cancelled) else "failed"

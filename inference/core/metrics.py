"""Counts the core's requests and tokens since its start, for Prometheus, and writes the log of requests."""

from __future__ import annotations

import logging
import secrets
import time
from hashlib import blake2s

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from inference.engine.request import Request
from kv_store.interface import StoreStats
from protocol.errors import MidfillError
from protocol.messages import Completion, Usage

_SUMS = {
    "prompt_tokens": "Tokens of prompts.",
    "recomputed_tokens": "Prompt tokens that the model computed, because they were not resident.",
    "generated_tokens": "Tokens of completions.",
    "drafted_tokens": "Draft tokens that a forward verified.",
    "accepted_tokens": "Accepted draft tokens, each of which saved a forward.",
    "forwards": "Forwards that requests took part in; one that two requests share counts twice.",
}
NO_USER = "-"
"""The label of requests with the core's own token; no user has this name."""
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0)
_USER_TOKENS = ("prompt", "recomputed", "generated")
_PHASES = ("queue", "prepare", "prefill", "decode")


class Metrics:
    """Thread-safe counters."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "requests", "Requests answered, by kind (suggestion, prefetch) and outcome.", "kind", "outcome"
        )
        self._sums = {name: self._counter(name, text) for name, text in _SUMS.items()}
        self._seconds = self._counter("seconds", "Time spent on completed requests, by phase.", "phase")
        self._user_requests = self._counter("user_requests", "Requests answered, by user and outcome.", "user", "outcome")
        self._user_tokens = self._counter(
            "user_tokens", "Tokens of completed requests, by user and kind (prompt, recomputed, generated).", "user", "kind"
        )
        self._suggestion = self._histogram(
            "suggestion_seconds", "From a suggestion's request to its answer, by user.", _SECONDS, "user"
        )
        self._queue = self._histogram("queue_seconds", "From submission to the last start, per suggestion.", _SECONDS)
        self._prefill = self._histogram("prefill_seconds", "Prefill, per suggestion.", _SECONDS)
        self._resident_share = self._histogram(
            "resident_share", "Share of a suggestion's prompt tokens that were resident, by user.", _SHARES, "user"
        )
        self._connections = self._gauge("connections", "Open WebSocket connections.")
        self._loaded = self._gauge("model_loaded", "Whether the model is in memory.")
        self._tokens = self._gauge("resident_tokens", "Tokens whose KV is in the store, by tier.", "tier")
        self._bytes = self._gauge("resident_bytes", "Bytes of KV in the store, by tier.", "tier")

    def observe(self, request: Request) -> None:
        user, kind, outcome = request.user or NO_USER, request.kind, request.result
        self._requests.labels(kind, outcome).inc()
        self._user_requests.labels(user, outcome).inc()
        if not isinstance(request.outcome, Completion):
            return
        usage = request.outcome.usage
        self._add(usage)
        for name in _USER_TOKENS:
            self._user_tokens.labels(user, name).inc(getattr(usage, f"{name}_tokens"))
        if kind == "suggestion":
            self._suggestion.labels(user).observe(time.perf_counter() - request.submitted)
            self._queue.observe(usage.queue_ms / 1e3)
            self._prefill.observe(usage.prefill_ms / 1e3)
            self._resident_share.labels(user).observe(1 - usage.recomputed_tokens / max(1, usage.prompt_tokens))

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

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"midfill_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"midfill_{name}", text, labels, buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"midfill_{name}", text, labels, registry=self._registry)


log = logging.getLogger(__name__)

_LOGGED = ("prompt_tokens", "recomputed_tokens", "generated_tokens", "queue_ms", "prefill_ms", "decode_ms")


class RequestLog:
    """For `--log-format json`, whose lines have these fields. Thread-safe."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)  # sessions are named after files: lines can be compared within a run only

    def observe(self, request: Request) -> None:
        outcome = request.outcome
        fields: dict[str, object] = {
            "user": request.user,
            "session": blake2s(request.spec.session.encode(), digest_size=8, key=self._key).hexdigest(),
            "kind": request.kind,
            "outcome": request.result,
            "ms": round((time.perf_counter() - request.submitted) * 1e3, 1),
        }
        if isinstance(outcome, Completion):
            fields |= {name: round(getattr(outcome.usage, name), 1) for name in _LOGGED}
        elif isinstance(outcome, MidfillError):
            fields["error"] = outcome.code
        log.info("request", extra=fields)

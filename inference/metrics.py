"""What the core has done since it started, counted for people and for Prometheus."""

from __future__ import annotations

import threading
from collections import defaultdict

from inference.job_queue import Answer
from kv_store.interface import StoreStats
from protocol.errors import Cancelled
from protocol.messages import Completion, CompletionRequest

_HELP = {
    "requests": "Requests answered, by kind (suggestion, ahead) and outcome.",
    "prompt_tokens": "Tokens of prompts.",
    "recomputed_tokens": "Prompt tokens pushed through the model.",
    "generated_tokens": "Tokens of suggestions.",
    "drafted_tokens": "Tokens guessed at, and verified in a forward.",
    "accepted_tokens": "Of them those that were right, each of which saved a forward.",
    "forwards": "Forwards of the model, by the requests that had a part in them.",
    "seconds": "Time spent on completed requests, by phase.",
}


class Metrics:
    """Counters that any thread may add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, str], float] = defaultdict(float)  # by name and labels

    def observe(self, request: CompletionRequest, answer: Answer) -> None:
        """Count one answered request."""
        kind = "ahead" if request.max_tokens == 0 else "suggestion"
        with self._lock:
            self._counts["requests", f'{{kind="{kind}",outcome="{_outcome(answer)}"}}'] += 1
            if isinstance(answer, Completion):
                self._add_usage(answer)

    def _add_usage(self, completion: Completion) -> None:
        usage = completion.usage
        self._counts["prompt_tokens", ""] += usage.prompt_tokens
        self._counts["recomputed_tokens", ""] += usage.recomputed_tokens
        self._counts["generated_tokens", ""] += usage.generated_tokens
        self._counts["drafted_tokens", ""] += usage.drafted_tokens
        self._counts["accepted_tokens", ""] += usage.accepted_tokens
        self._counts["forwards", ""] += usage.forwards
        phases = {
            "queue": usage.queue_ms,
            "prepare": usage.prepare_ms,
            "prefill": usage.prefill_ms,
            "decode": usage.decode_ms,
        }
        for phase, ms in phases.items():
            self._counts["seconds", f'{{phase="{phase}"}}'] += ms / 1e3

    def render(self, connections: int, model_loaded: bool, residency: StoreStats | None) -> str:
        """Everything in Prometheus' text format, with the gauges of this moment."""
        with self._lock:
            counts = dict(self._counts)
        lines = []
        for name, text in _HELP.items():
            lines += [f"# HELP midfill_{name}_total {text}", f"# TYPE midfill_{name}_total counter"]
            samples = sorted((labels, value) for (counted, labels), value in counts.items() if counted == name)
            lines += [f"midfill_{name}_total{labels} {value:.15g}" for labels, value in samples]
        lines += _gauge("connections", "Open WebSocket connections.", {"": connections})
        lines += _gauge("model_loaded", "Whether the model is in memory.", {"": int(model_loaded)})
        tiers = residency.tiers if residency is not None else ()
        tokens = {f'{{tier="{tier.name}"}}': tier.tokens for tier in tiers}
        used = {f'{{tier="{tier.name}"}}': tier.used_bytes for tier in tiers}
        lines += _gauge("resident_tokens", "Tokens whose KV is in the store, by tier.", tokens)
        lines += _gauge("resident_bytes", "Bytes of KV in the store, by tier.", used)
        return "\n".join(lines) + "\n"


def _outcome(answer: Answer) -> str:
    if isinstance(answer, Completion):
        return "completed"
    return "cancelled" if isinstance(answer, Cancelled) else "failed"


def _gauge(name: str, text: str, samples: dict[str, int]) -> list[str]:
    head = [f"# HELP midfill_{name} {text}", f"# TYPE midfill_{name} gauge"]
    return head + [f"midfill_{name}{labels} {value}" for labels, value in samples.items()]

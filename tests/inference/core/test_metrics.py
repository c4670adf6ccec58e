from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inference.core.metrics import Metrics
from inference.engine.request import Request
from kv_store.interface import StoreStats, TierStats
from protocol.errors import BadInput, Busy, Cancelled, MidfillError
from protocol.messages import Completion, CompletionRequest, Prompt, Usage


def answered(outcome: Completion | MidfillError, max_tokens: int = 4, user: str = "") -> Request:
    return Request(CompletionRequest("a.py", Prompt("", ""), max_tokens), "client", user, outcome=outcome)


COMPLETION = Completion(
    "x",
    "eos",
    Usage(10, 3, 2, 4, queue_ms=500.0, prefill_ms=250.0, decode_ms=0.0, drafted_tokens=5, accepted_tokens=2, prepare_ms=125.0),
)


def samples(text: str) -> dict[str, float]:
    """What Prometheus reads, without the times at which the counters began."""
    read = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for sample in read
        if not sample.name.endswith(("_created", "_bucket"))
    }


def kinds(completions: int) -> dict[str, int]:
    return {"prompt": 10 * completions, "recomputed": 3 * completions, "generated": 2 * completions}


def test_counters_add_up() -> None:
    metrics = Metrics()
    for answer in (COMPLETION, Cancelled("x"), BadInput("y"), Busy("z")):
        metrics.observe(answered(answer))
    metrics.observe(answered(COMPLETION, user="ann"))
    metrics.observe(answered(COMPLETION, max_tokens=0))
    residency = StoreStats((TierStats("device", 400, 1000, 100, 2),), evicted_tokens=0)
    found = samples(metrics.render(connections=3, model_loaded=True, residency=residency))
    assert found.pop("midfill_suggestion_seconds_sum -") > 0
    assert found.pop("midfill_suggestion_seconds_sum ann") > 0
    assert found == {
        "midfill_user_requests_total completed -": 2,
        "midfill_user_requests_total cancelled -": 1,
        "midfill_user_requests_total failed -": 1,
        "midfill_user_requests_total refused -": 1,
        "midfill_user_requests_total completed ann": 1,
        **{f"midfill_user_tokens_total {kind} -": count for kind, count in kinds(2).items()},
        **{f"midfill_user_tokens_total {kind} ann": count for kind, count in kinds(1).items()},
        "midfill_suggestion_seconds_count -": 1,
        "midfill_suggestion_seconds_count ann": 1,
        "midfill_queue_seconds_count": 2,
        "midfill_queue_seconds_sum": 1.0,
        "midfill_prefill_seconds_count": 2,
        "midfill_prefill_seconds_sum": 0.5,
        "midfill_resident_share_count -": 1,
        "midfill_resident_share_sum -": pytest.approx(0.7),
        "midfill_resident_share_count ann": 1,
        "midfill_resident_share_sum ann": pytest.approx(0.7),
        "midfill_requests_total suggestion refused": 1,
        "midfill_requests_total suggestion completed": 2,
        "midfill_requests_total suggestion cancelled": 1,
        "midfill_requests_total suggestion failed": 1,
        "midfill_requests_total prefetch completed": 1,
        "midfill_prompt_tokens_total": 30,
        "midfill_recomputed_tokens_total": 9,
        "midfill_generated_tokens_total": 6,
        "midfill_drafted_tokens_total": 15,
        "midfill_accepted_tokens_total": 6,
        "midfill_forwards_total": 12,
        "midfill_seconds_total queue": 1.5,
        "midfill_seconds_total prepare": 0.375,
        "midfill_seconds_total prefill": 0.75,
        "midfill_seconds_total decode": 0,
        "midfill_connections": 3,
        "midfill_model_loaded": 1,
        "midfill_resident_tokens device": 100,
        "midfill_resident_bytes device": 400,
    }


def test_nothing_counted_yet_is_valid_too() -> None:
    text = Metrics().render(connections=0, model_loaded=False, residency=None)
    found = samples(text)
    assert {"midfill_connections", "midfill_model_loaded", "midfill_forwards_total"} <= found.keys()
    assert set(found.values()) == {0}
    assert "# TYPE midfill_requests_total counter" in text

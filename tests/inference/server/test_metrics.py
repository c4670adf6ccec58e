from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from inference.server.metrics import Metrics
from kv_store.interface import StoreStats, TierStats
from protocol.errors import BadInput, Cancelled
from protocol.messages import Completion, CompletionRequest, Prompt, Usage

REQUEST = CompletionRequest("a.py", Prompt("", ""), 4)
COMPLETION = Completion(
    "x",
    "eos",
    Usage(
        10,
        3,
        2,
        4,
        queue_ms=500.0,
        prefill_ms=250.0,
        decode_ms=0.0,
        drafted_tokens=5,
        accepted_tokens=2,
        prepare_ms=125.0,
    ),
)


def samples(text: str) -> dict[str, float]:
    """What Prometheus reads, without the times at which the counters began."""
    read = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for sample in read
        if not sample.name.endswith("_created")
    }


def test_counters_add_up() -> None:
    metrics = Metrics()
    for answer in (COMPLETION, COMPLETION, Cancelled("x"), BadInput("y")):
        metrics.observe(REQUEST, answer)
    metrics.observe(CompletionRequest("a.py", Prompt("", ""), 0), COMPLETION)
    residency = StoreStats((TierStats("device", 400, 1000, 100, 2),), evicted_tokens=0)
    found = samples(metrics.render(connections=3, model_loaded=True, residency=residency))
    assert found == {
        "midfill_requests_total suggestion completed": 2,
        "midfill_requests_total suggestion cancelled": 1,
        "midfill_requests_total suggestion failed": 1,
        "midfill_requests_total ahead completed": 1,
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

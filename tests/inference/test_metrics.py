from __future__ import annotations

from inference.metrics import Metrics
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


def samples(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_counters_add_up() -> None:
    metrics = Metrics()
    for answer in (COMPLETION, COMPLETION, Cancelled("x"), BadInput("y")):
        metrics.observe(REQUEST, answer)
    metrics.observe(CompletionRequest("a.py", Prompt("", ""), 0), COMPLETION)
    residency = StoreStats((TierStats("device", 400, 1000, 100, 2),), hits=1, misses=1, evicted_tokens=0)
    found = samples(metrics.render(connections=3, model_loaded=True, residency=residency))
    assert found == {
        'midfill_requests_total{kind="suggestion",outcome="completed"}': "2",
        'midfill_requests_total{kind="suggestion",outcome="cancelled"}': "1",
        'midfill_requests_total{kind="suggestion",outcome="failed"}': "1",
        'midfill_requests_total{kind="ahead",outcome="completed"}': "1",
        "midfill_prompt_tokens_total": "30",
        "midfill_recomputed_tokens_total": "9",
        "midfill_generated_tokens_total": "6",
        "midfill_drafted_tokens_total": "15",
        "midfill_accepted_tokens_total": "6",
        "midfill_forwards_total": "12",
        'midfill_seconds_total{phase="queue"}': "1.5",
        'midfill_seconds_total{phase="prepare"}': "0.375",
        'midfill_seconds_total{phase="prefill"}': "0.75",
        'midfill_seconds_total{phase="decode"}': "0",
        "midfill_connections": "3",
        "midfill_model_loaded": "1",
        'midfill_resident_tokens{tier="device"}': "100",
        'midfill_resident_bytes{tier="device"}': "400",
    }


def test_nothing_counted_yet_is_valid_too() -> None:
    text = Metrics().render(connections=0, model_loaded=False, residency=None)
    assert samples(text) == {"midfill_connections": "0", "midfill_model_loaded": "0"}
    assert "# TYPE midfill_requests_total counter" in text

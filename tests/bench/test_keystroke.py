from __future__ import annotations

from tests.bench.conftest import Figures


def test_a_tiny_run_tells_the_model_from_the_rest(model: str, figures: Figures) -> None:
    found = figures("keystroke.py", "--model", model, "--warm-up", "1", "--limit", "3")["models"][model]
    assert found["requests"] == 3
    parts = [found[name] for name in ("language_server_ms", "own_share_ms", "time_to_suggestion_ms")]
    for rank in ("p50", "p95", "p99"):
        assert 0 < parts[0][rank] < parts[1][rank] < parts[2][rank]
    assert found["recomputed_tokens"]["p50"] <= 3, "the moves were told, and so the keys are cache hits"

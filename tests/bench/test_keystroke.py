from __future__ import annotations

import json
from pathlib import Path

from tests.bench.conftest import RunBench
from tests.inference.tiny import write_checkpoint


def test_a_tiny_run_tells_the_model_from_the_rest(tmp_path: Path, run_bench: RunBench) -> None:
    model = str(write_checkpoint(tmp_path / "model", max_position_embeddings=8192))
    session = ("--warm-up", "1", "--limit", "3")
    run_bench("keystroke.py", "--model", model, *session, "--json", tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())["models"][model]
    assert figures["requests"] == 3
    for rank in ("p50", "p95", "p99"):
        assert (
            0
            < figures["language_server_ms"][rank]
            < figures["own_share_ms"][rank]
            < figures["time_to_suggestion_ms"][rank]
        )
    assert figures["recomputed_tokens"]["p50"] <= 3, "the moves were told, and so the keys are hot"

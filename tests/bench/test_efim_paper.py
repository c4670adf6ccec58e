from __future__ import annotations

from tests.bench.conftest import Figures


def test_a_tiny_run_plays_every_strategy(model: str, figures: Figures) -> None:
    size = ("--users", "2", "--rounds", "2", "--max-new-tokens", "4", "--repeats", "1", "--threads", "1")
    found = figures("efim_paper.py", "--model", model, *size)["models"][model]
    strategies = found["strategies"]
    assert list(strategies) == ["none", "psm", "spm", "efim"]
    assert strategies["none"]["reuse_share"] == 0
    assert strategies["efim"]["recomputed_tokens"] < strategies["psm"]["recomputed_tokens"]
    assert all(row["latency_ms"] > 0 and row["tokens_per_s"] > 0 for row in strategies.values())
    assert set(found["efim_against"]) == {"none", "psm", "spm"}

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.conftest import RunBench
from tests.inference.tiny import write_checkpoint


def test_a_tiny_run_plays_every_strategy(tmp_path: Path, run_bench: RunBench) -> None:
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}  # heads that the kernel knows
    model = str(write_checkpoint(tmp_path / "model", max_position_embeddings=8192, **shape))
    size = ("--users", "2", "--rounds", "2", "--max-new-tokens", "4", "--repeats", "1", "--threads", "1")
    run_bench("efim_paper.py", "--model", model, *size, "--json", tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())["models"][model]
    strategies = figures["strategies"]
    assert list(strategies) == ["none", "psm", "spm", "efim"]
    assert strategies["none"]["reuse_share"] == 0
    assert strategies["efim"]["recomputed_tokens"] < strategies["psm"]["recomputed_tokens"]
    assert all(row["latency_ms"] > 0 and row["tokens_per_s"] > 0 for row in strategies.values())
    assert set(figures["efim_against"]) == {"none", "psm", "spm"}

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.inference.tiny import write_checkpoint

ROOT = Path(__file__).parents[2]


def test_a_tiny_run_plays_every_strategy(tmp_path: Path) -> None:
    model = str(write_checkpoint(tmp_path / "model", max_position_embeddings=8192))
    command = [sys.executable, "bench/efim_paper.py", "--model", model, "--users", "2", "--rounds", "2"]
    command += ["--max-new-tokens", "4", "--repeats", "1", "--json", str(tmp_path / "figures.json")]
    subprocess.run(command, cwd=ROOT, check=True)
    figures = json.loads((tmp_path / "figures.json").read_text())["models"][model]
    strategies = figures["strategies"]
    assert list(strategies) == ["none", "psm", "spm", "efim"]
    assert strategies["none"]["reuse_share"] == 0
    assert strategies["efim"]["recomputed_tokens"] < strategies["psm"]["recomputed_tokens"]
    assert all(row["latency_ms"] > 0 and row["tokens_per_s"] > 0 for row in strategies.values())
    assert set(figures["efim_against"]) == {"none", "psm", "spm"}

import json
from pathlib import Path

from tests.bench.conftest import RunBench
from tests.inference.tiny import write_checkpoint


def test_a_tiny_run_finds_what_was_saved(tmp_path: Path, run_bench: RunBench) -> None:
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=8192)
    run_bench("restart.py", "--model", model, "--rounds", "1", "--json", tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["recomputed_tokens"]["warm"] == 1
    assert figures["recomputed_tokens"]["cold"] == figures["prompt_tokens"]

import json
import subprocess
import sys
from pathlib import Path

from tests.inference.tiny import write_checkpoint

ROOT = Path(__file__).parents[2]


def test_a_tiny_run_finds_what_was_saved(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=8192)
    command = [sys.executable, "bench/restart.py", "--model", str(model), "--rounds", "1"]
    subprocess.run([*command, "--json", str(tmp_path / "figures.json")], cwd=ROOT, check=True)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["recomputed_tokens"]["warm"] == 1
    assert figures["recomputed_tokens"]["cold"] == figures["prompt_tokens"]

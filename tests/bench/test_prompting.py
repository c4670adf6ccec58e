import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_tiny_run_gives_figures_for_each_size(tmp_path: Path) -> None:
    command = [sys.executable, "bench/prompting.py", "--lines", "50", "--lines", "500", "--edits", "100"]
    subprocess.run([*command, "--json", str(tmp_path / "figures.json")], cwd=ROOT, check=True)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures["milliseconds"]) == {"50", "500"}
    assert figures["milliseconds"]["500"]["p99"] > 0

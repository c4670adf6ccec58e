import json
from pathlib import Path

from tests.bench.conftest import RunBench


def test_a_tiny_run_gives_figures_for_each_size(tmp_path: Path, run_bench: RunBench) -> None:
    size = ("--lines", "50", "--lines", "500", "--edits", "100")
    run_bench("prompting.py", *size, "--json", tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures["milliseconds"]) == {"50", "500"}
    assert figures["milliseconds"]["500"]["p99"] > 0

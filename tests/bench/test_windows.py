from __future__ import annotations

import json
from pathlib import Path

from tests.bench.conftest import ROOT, RunBench

TRACE = ROOT / "tests" / "data" / "rustcode-3000-3400.json.gz"


def test_memory_is_listed_of_every_process_and_nothing_fails(tmp_path: Path, run_bench: RunBench) -> None:
    file = tmp_path / "figures.json"
    short = ("--windows", "2", "--minutes", "0.1", "--turn", "2", "--rest", "1", "--model", "tiny")
    run_bench("windows.py", TRACE, *short, "--json", file)
    figures = json.loads(file.read_text())
    assert figures["keys"] >= figures["answered"] > 0
    assert figures["failures"] == []
    assert sorted(process["name"] for process in figures["processes"]) == ["core", "language server", "language server"]
    assert all(process["most_mb"] >= process["first_mb"] > 0 for process in figures["processes"])

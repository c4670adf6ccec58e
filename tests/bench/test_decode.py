from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from inference.backends.cpu.library import unavailable_reason
from tests.bench.conftest import ROOT, RunBench


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([1e-6], (1, 1)),
        ([1e-4, 1e-6], (1, 100)),
        ([4e-6, 1e-6, 2e-6], (1, 4)),
        ([1e-6, 2e-6, 3e-6, 4e-6, 5e-6], (1.5, 4.5)),
    ],
)
def test_quartiles_lie_within_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], expected: tuple[float, float]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")  # where its modules find each other
    assert importlib.import_module("bench.decode").quartiles(seconds) == expected


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
def test_a_tiny_run_writes_a_row_per_engine_and_case(
    tmp_path: Path, run_bench: RunBench, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    run_bench("decode.py", "--shape", "tiny", "--threads", "1", "--rounds", "2", "--level", "portable", "--json", path)
    rows = json.loads(path.read_text())["rows"]
    assert {row["case"] for row in rows} == {"512+1", "2048+1", "2048+2", "2048+4", "2048+8"}
    assert len({row["engine"] for row in rows}) == 6
    assert all(0 < row["quartiles"][0] <= row["microseconds"] <= row["quartiles"][1] for row in rows)
    assert all(row["times_torch"] > 0 and row["share_of_bandwidth"] > 0 for row in rows)
    assert "2048+8" in capsys.readouterr().out

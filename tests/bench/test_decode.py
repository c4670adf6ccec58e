from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from inference.kernel import unavailable_reason

BENCH = Path(__file__).parents[2] / "bench" / "decode.py"


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
def test_a_tiny_run_writes_a_row_per_engine_and_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    runpy.run_path(str(BENCH))["main"](shape=["tiny"], threads=[1], rounds=1, peers=True, json_file=path)
    rows = json.loads(path.read_text())["rows"]
    assert {row["case"] for row in rows} == {"512+1", "2048+1", "2048+2", "2048+4", "2048+8"}
    assert len({row["engine"] for row in rows}) == 5
    assert all(row["microseconds"] > 0 and row["times_torch"] > 0 and row["share_of_bandwidth"] > 0 for row in rows)
    assert "2048+8" in capsys.readouterr().out

from __future__ import annotations

import pytest

from bench.decode import quartiles
from tests.bench.conftest import Figures, needs_kernel


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([1e-6], (1, 1)), ([1e-4, 1e-6], (1, 100)), ([4e-6, 1e-6, 2e-6], (1, 4)), ([1e-6, 2e-6, 3e-6, 4e-6, 5e-6], (1.5, 4.5))],
)
def test_quartiles_lie_within_what_was_measured(seconds: list[float], expected: tuple[float, float]) -> None:
    assert quartiles(seconds) == expected


@needs_kernel
def test_a_tiny_run_writes_a_row_per_engine_and_case(figures: Figures, capsys: pytest.CaptureFixture[str]) -> None:
    rows = figures("decode.py", "--shape", "tiny", "--threads", "1", "--rounds", "2", "--level", "portable")["rows"]
    assert {row["case"] for row in rows} == {"512+1", "2048+1", "2048+2", "2048+4", "2048+8"}
    assert len({row["engine"] for row in rows}) == 6
    assert all(0 < row["quartiles"][0] <= row["microseconds"] <= row["quartiles"][1] for row in rows)
    assert all(row["times_torch"] > 0 and row["share_of_bandwidth"] > 0 for row in rows)
    assert "2048+8" in capsys.readouterr().out

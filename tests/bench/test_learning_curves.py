from __future__ import annotations

import json
from pathlib import Path

from tests.bench.conftest import RunBench


def test_a_curve_for_each_run_with_its_name(tmp_path: Path, run_bench: RunBench) -> None:
    for name in ("one", "other"):
        entries = [{"progress": {"tokens": 4096 * step}, "loss": 9 - step / 20} for step in range(1, 101)]
        entries.append({"held_out": {}})
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    drawn = tmp_path / "curves.svg"
    run_bench("learning_curves.py", tmp_path / "one", tmp_path / "other", "--plot", drawn)
    svg = drawn.read_text()
    assert svg.count("<!-- one -->") == svg.count("<!-- other -->") == 1

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_curve_for_each_run_with_its_name(tmp_path: Path) -> None:
    for name in ("one", "other"):
        entries = [{"progress": {"tokens": 4096 * step}, "loss": 9 - step / 20} for step in range(1, 101)]
        entries.append({"held_out": {}})
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    drawn = tmp_path / "curves.svg"
    command = [sys.executable, "bench/learning_curves.py", str(tmp_path / "one"), str(tmp_path / "other")]
    subprocess.run([*command, "--plot", str(drawn)], cwd=ROOT, check=True)
    svg = drawn.read_text()
    assert svg.count("<!-- one -->") == svg.count("<!-- other -->") == 1

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.bench.conftest import RunBench
from tests.inference.tiny import write_checkpoint
from tests.lab.packages import write_module


def test_every_combination_is_trained_once_and_has_a_row(
    tmp_path: Path, run_bench: RunBench, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for seed in range(4):
        (source / f"module_{seed}.py").write_text(write_module(Random(seed), 20), encoding="utf-8")
    model = write_checkpoint(tmp_path / "model")
    varied = ("--vary", "lr=1e-3,1e-4", "--vary", "middles-only=on")
    common = ("--window", "64", "--evaluation-samples", "2", "--cpu", "--mixed-precision", "no")
    arguments = (source, "--from", model, "--output", tmp_path / "trials", "--tokens", "4096", *varied, "--", *common)
    run_bench("trials.py", *arguments)
    folders = sorted(path.name for path in (tmp_path / "trials").iterdir())
    assert folders == ["lr=1e-3_middles-only=on", "lr=1e-4_middles-only=on"]
    logs = [(tmp_path / "trials" / name / "log.jsonl").read_bytes() for name in folders]
    (table,) = [part for part in capfd.readouterr().out.split("held-out nats per byte")[2:] if "TEXT whole" in part]
    assert table.count("1e-3") == table.count("1e-4") == 1
    run_bench("trials.py", *arguments)
    assert [(tmp_path / "trials" / name / "log.jsonl").read_bytes() for name in folders] == logs

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import ROOT, RunBench
from tests.inference.tiny import write_tokenizer

TRACE = ROOT / "tests" / "data" / "rustcode-3000-3400.json.gz"
SHORT = ("--typists", "3", "--warm-up", "1", "--seconds", "6", "--keys-per-second", "10")


def run_team(run_bench: RunBench, folder: Path, *options: str) -> dict[str, Any]:
    file = folder / "figures.json"
    run_bench("team.py", TRACE, *SHORT, "--json", file, *options)
    figures: dict[str, Any] = json.loads(file.read_text())
    assert figures["requests"] == figures["answered"] + figures["overtaken"]
    assert (figures["lost"], figures["failures"]) == (0, {})
    assert figures["fairness"] >= 1
    return figures


def test_all_are_answered_beside_a_flood_and_a_client_that_never_reads(tmp_path: Path, run_bench: RunBench) -> None:
    figures = run_team(run_bench, tmp_path, "--flood", "--silent-reader")
    assert figures["typists_without_an_answer"] == 0
    assert 0 <= figures["hot_share"] <= 1


@pytest.mark.parametrize("kind", ["openai", "llama-server"])
def test_no_request_fails_while_a_replica_is_killed_and_comes_back(
    kind: str, tmp_path: Path, run_bench: RunBench
) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    command = f"{sys.executable} -m tests.inference.remote.fake_servers {kind} {{port}} {tmp_path}"
    replicas = ("--replica", command, "--replica", command, "--kind", kind, "--kill-replica")
    assert run_team(run_bench, tmp_path, *replicas)["answered"] > 3

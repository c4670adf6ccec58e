from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import gpu_proof
import pytest
import torch
from proof.card import Card
from proof.requests_file import RECORDED, read_requests
from proof.runner import Outcome, Record, Runner

from tests.bench.conftest import RunBench
from tests.inference.tiny import ROOT

UNINSTALLED = """
import importlib.metadata, runpy, sys
found = importlib.metadata.version
importlib.metadata.version = lambda name: found("no such package" if name == "midfill" else name)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
COMMAND = [sys.executable, str(ROOT / "bench" / "gpu_proof.py")]
BY_CHECKS = {0, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12}


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as on a machine where midfill is not installed."""
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-c", UNINSTALLED, *COMMAND[1:], *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=environment)


@pytest.mark.timeout(900)  # two processes that compute for half a minute
@pytest.mark.parametrize("sections", [(0, 1, 2, 3, 4, 5, 6, 7, 13), (8, 9, 10, 11, 12)])
def test_every_section_runs_dry_and_its_checks_hold(sections: tuple[int, ...], tmp_path: Path) -> None:
    ended = run("--dry", "--output", tmp_path, "--sections", ",".join(map(str, sections)))
    found = json.loads((tmp_path / "proof.json").read_text())["sections"]
    assert [section["number"] for section in found] == sorted(sections)
    problems = [(each["number"], each["note"], each["checks"], each["rows"][-1:]) for each in found if bad(each)]
    assert not problems, ended.stderr
    assert {each["number"] for each in found if each["checks"]} == BY_CHECKS & set(sections)
    assert all(each["rows"] for each in found)
    assert ended.returncode == 0
    table = (tmp_path / "proof.txt").read_text()
    assert ended.stdout.endswith(table)
    assert table.rstrip().splitlines()[-1].startswith("PROVEN")
    lines = [json.loads(line) for line in (tmp_path / "proof.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == list(sections)


def bad(section: dict[str, object]) -> bool:
    return section["verdict"] not in ("pass", "measured")


@pytest.mark.skipif(bool(os.environ.get("MIDFILL_TEST_GPU")), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_proof.main(["--output", str(tmp_path / "proof")]) == gpu_proof.UNUSABLE
    assert "device 'cuda' is not available" in capsys.readouterr().out
    assert not (tmp_path / "proof").exists()


def sections(*arguments: str) -> list[int]:
    card = Card(torch.device("cpu"), rounds=1)
    return [section.number for section in gpu_proof.sections_of(card, gpu_proof.arguments(arguments))]


def test_sections_are_chosen_by_their_numbers() -> None:
    assert sections() == list(range(16))
    assert sections("--sections", "12, 3") == [3, 12]
    with pytest.raises(SystemExit, match="there is no section 99: choose 0 to 15"):
        sections("--sections", "3,99")


def test_the_planned_seconds_are_within_the_budget() -> None:
    card = Card(torch.device("cpu"), rounds=1)
    planned = [section.planned_s for section in gpu_proof.sections_of(card, gpu_proof.arguments([]))]
    assert sum(planned) <= gpu_proof.BUDGET_S


def test_another_process_goes_on_after_a_lost_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card, started = Card(torch.device("cpu"), rounds=1), []
    options = gpu_proof.arguments(["--budget", "100000", "--output", str(tmp_path)])
    monkeypatch.setattr(os, "execv", lambda _, command: started.append(command))
    gpu_proof._go_on(gpu_proof.sections_of(card, options)[11:], options)
    ((_, script, *given),) = started
    assert script == COMMAND[1]
    again = gpu_proof.arguments(given)
    assert (again.sections, again.go_on, again.output) == ("11,12,13,14,15", True, tmp_path)
    assert 0 < again.budget < options.budget


def ending_of(folder: Path) -> tuple[gpu_proof.Ending, Record]:
    record = Record(folder)
    record.add(Outcome(1, "done", 5.0, verdict="pass"))
    ending = gpu_proof.Ending(record, folder, {"machine": "a card"})
    ending.runner = Runner(record, 0.0)
    ending.runner.running = Outcome(2, "at work", 5.0, rows=[{"ms": 1}])
    return ending, record


def test_a_command_that_is_ended_leaves_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ending, _ = ending_of(tmp_path)
    with pytest.raises(SystemExit), gpu_proof.ending_by(ending, 1000.0):
        os.kill(os.getpid(), 15)
    found = json.loads((tmp_path / "proof.json").read_text())["sections"]
    assert [(each["number"], each["verdict"], each["rows"]) for each in found] == [(1, "pass", []), (2, "cut", [{"ms": 1}])]
    assert capsys.readouterr().out.rstrip().endswith("NOT PROVEN (pass: 1; cut: 2)")


def test_a_call_that_does_not_return_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ending, record = ending_of(tmp_path)
    left = threading.Event()
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", lambda status: (statuses.append(status), left.set()))
    with gpu_proof.ending_by(ending, 0.0):
        assert left.wait(60)
    assert statuses == [1]
    assert [outcome.verdict for outcome in record.outcomes] == ["pass", "cut"]  # once


def test_recording_makes_the_file(tmp_path: Path, run_bench: RunBench) -> None:
    pytest.importorskip("pygls")  # of the language server, which the proof does without
    run_bench("record_requests.py", "--output", tmp_path / "file", "--most", "5")
    requests = read_requests(tmp_path / "file")
    assert sum(request.max_tokens > 0 for request in requests) == 5
    assert RECORDED.exists()

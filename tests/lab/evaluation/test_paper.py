"""The protocol of the EFIM paper: its prompts, what is asked for, and its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.text.tokenization import read_tokenizer
from midfill.commands import app
from midfill_lab.evaluation.paper import SPLITS, PaperEvaluator, lay_prompt
from midfill_lab.evaluation.runner import TaskSet
from midfill_lab.evaluation.sandbox import Sandbox
from midfill_lab.evaluation.tasks import read_benchmark
from protocol.messages import CompletionRequest, Prompt
from tests.inference.remote.fake_servers import FakeServer, openai_server, serving
from tests.inference.tiny import write_tokenizer

DATA = Path(__file__).with_name("data")
TASKS = read_benchmark(DATA, as_published=True)


def test_efim_cuts_what_stands_before_the_gap_at_a_random_character() -> None:
    task = TASKS["single-line"][0]
    assert task.middle.endswith("\n")
    assert lay_prompt(task, "FIM", 0) == Prompt(task.before, task.after)
    cuts = set()
    for seed in range(40):
        prompt = lay_prompt(task, "EFIM", seed)
        assert prompt == lay_prompt(task, "EFIM", seed)
        assert (prompt.prefix + prompt.increment, prompt.suffix) == (task.before, task.after)
        assert prompt.prefix
        assert prompt.increment
        cuts.add(len(prompt.prefix))
    assert len(cuts) > 20


def test_a_model_on_both_kinds_of_engines(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    server = FakeServer(read_tokenizer(tmp_path / "tokenizer.json"), model=str(tmp_path), context=8192)
    options = ["--paper", "--human-eval", str(DATA), "--limit", "2", "--allow-code-execution", "--without-sandbox"]
    with serving(openai_server(server)) as url:
        there = CliRunner().invoke(app, ["eval", *options, "--json", "-", "--engine", f"openai={url}", "--model", str(tmp_path)])
    here = CliRunner().invoke(app, ["eval", *options, "--models", "tiny", "--limit", "1"])
    assert (here.exit_code, there.exit_code) == (0, 0), (here.exception, there.exception)
    rows = [json.loads(line) for line in there.stdout.splitlines()]
    assert [(row["layout"], row["split"], row["n"]) for row in rows] == [
        (layout, split, 2) for layout in ("FIM", "EFIM") for split in SPLITS
    ]
    asked = [body for body in server.bodies if body["stream"] and body["max_tokens"] == 128]
    assert len(asked) == 2 * len(rows)
    fields = ("temperature", "top_p", "top_k")
    assert {tuple(body[field] for field in fields) for body in asked} == {(0.2, 0.95, 20)}
    assert not any("stop" in body for body in asked)
    assert here.stdout.count(" tiny ") == 2  # a row for FIM, and one for EFIM
    assert "pass@1, temperature 0.2" in here.stdout


def test_programs_that_are_right_pass(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's texts are replaced by the published ones, all but the first task's."""
    tasks = TaskSet("human-eval-infilling", "random-span", tuple(TASKS["random-span"][:4]))
    engine = load_engine(EngineOptions(tiny_model, threads=1))

    def known(_: PaperEvaluator, specs: list[CompletionRequest]) -> list[tuple[int, str]]:
        assert len(specs) == len(tasks.tasks)
        return [(number, task.middle if number else "(") for number, task in enumerate(tasks.tasks)][::-1]

    monkeypatch.setattr(PaperEvaluator, "_texts", known)
    row = PaperEvaluator("tiny", engine, Sandbox(allow_unconfined=True), 0).row(tasks, "EFIM", lambda: None)
    engine.close()
    assert row.outcomes == ("failed", "passed", "passed", "passed")


def test_code_must_be_allowed_to_run() -> None:
    result = CliRunner().invoke(app, ["eval", "--paper", "--human-eval", str(DATA)])
    assert result.exit_code != 0
    assert "give --allow-code-execution" in str(result.exception)

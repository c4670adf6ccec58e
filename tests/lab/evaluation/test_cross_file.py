"""The conditions in pairs: what each source shows, how it is scored, and that equal prompts are computed once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lsp_server.prompts.anchors import WindowBudget
from midfill_lab.evaluation.cross_file import BASELINE, CONDITIONS, Desk, read_outcomes, rows, run, score, task_object
from midfill_lab.evaluation.packages import CrossFileTask, Package, cut_tasks
from protocol.errors import BadInput
from protocol.messages import Prompt, StopRule

PACKAGE = Package("python", "sample", "1.0", "MIT")
FILLER = "".join(f"value_{n} = compute({n}, {n + 1})  # a line of its own\n" for n in range(12))


@pytest.fixture
def task(tmp_path: Path) -> CrossFileTask:
    (tmp_path / "lib.py").write_text("def load_config(path, strict): ...\n" + FILLER.replace("value", "other"))
    (tmp_path / "user.py").write_text(f"from lib import load_config\n\nconfig = load_config(value_1, strict=True)\n{FILLER}")
    (task,) = cut_tasks(PACKAGE, tmp_path, seed=0)
    return task


def test_each_condition_has_its_sources_and_equal_prompts_are_computed_once(task: CrossFileTask) -> None:
    prompts: list[Prompt] = []

    def complete(prompt: Prompt, stop: StopRule) -> list[str]:
        prompts.append(prompt)
        return [task.middle if "def load_config" in "".join(each.text for each in prompt.context) else "wrong("]

    done: list[None] = []
    desk = Desk(seed=0, tokens=512, budget=WindowBudget())
    ((_, outcomes),) = run([task], desk, complete, lambda: done.append(None))
    desk.close()
    assert len(done) == len(CONDITIONS)
    assert len(prompts) == len(set(prompts)) < len(CONDITIONS) + 1
    assert {prompt.prefix + prompt.increment for prompt in prompts} == {task.before}
    assert not outcomes["none"].shown
    assert outcomes["definitions"].shown
    assert outcomes["definitions"].exact
    found = {row.condition: row for row in rows([(task, outcomes)])}
    assert list(found) == list(CONDITIONS)
    gain, without = found["definitions"].figures["points over none"], outcomes[BASELINE].exact
    assert gain is not None
    assert gain.value == 1 - without
    assert task_object(task, outcomes)["task"] == "sample/user.py:3"


@pytest.mark.parametrize(
    ("completion", "exact", "identifiers"),
    [
        ("load_config(value_1, strict=True)", True, True),
        ("load_config(value_1, strict=True)  \nmore", True, True),
        ("load_config(value_2, strict=True)", False, False),
        ("load_config( value_1, strict = True )", False, True),
        ("", False, False),
    ],
)
def test_scores(task: CrossFileTask, completion: str, exact: bool, identifiers: bool) -> None:
    outcome = score(task, completion, context="")
    assert (outcome.exact, outcome.identifiers) == (exact, identifiers)


def test_what_an_earlier_run_has_written_is_read(task: CrossFileTask, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    assert read_outcomes(file) == {}
    outcomes = {"none": score(task, task.middle, ""), "all": score(task, "", task.symbol)}
    row = json.dumps(task_object(task, outcomes))
    file.write_text(f"{row}\n{row[:20]}")  # torn
    assert read_outcomes(file) == {task.name: outcomes}
    file.write_text(f"{row}\n{row[:20]}\n{row}\n")
    with pytest.raises(BadInput, match=r"tasks\.jsonl, line 2"):
        read_outcomes(file)


def test_a_symbol_is_shown_as_a_whole_word(task: CrossFileTask) -> None:
    assert score(task, "", "def load_config(path)").shown
    assert not score(task, "", "def load_configs(path)").shown

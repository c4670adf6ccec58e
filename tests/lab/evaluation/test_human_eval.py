"""The benchmark's files, and that its own solutions pass and are found exact."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from midfill_lab.evaluation.human_eval import read_benchmark
from midfill_lab.evaluation.sandbox import Sandbox
from midfill_lab.evaluation.scoring import score
from midfill_lab.evaluation.tasks import CUTS, SPLITS, place_cursor
from protocol.errors import BadInput

DATA = Path(__file__).with_name("data")
# The folder of the whole benchmark: its 2,673 tasks take minutes, so that only those who ask for them run them.
WHOLE = Path(os.environ["HUMAN_EVAL_INFILLING"]) if "HUMAN_EVAL_INFILLING" in os.environ else None


def test_the_canonical_solutions_pass_and_are_exact() -> None:
    sandbox = Sandbox(allow_unconfined=True)
    benchmark = read_benchmark(WHOLE or DATA)
    assert set(benchmark) == set(SPLITS)
    for number, task in enumerate(task for split in SPLITS for task in benchmark[split]):
        case = place_cursor(task, CUTS[number % 3], lambda text: list(range(0, len(text), 3)), seed=number)
        outcome = sandbox.run(case.program(case.expected), task.test or "")
        assert outcome == "passed", task.name
        assert score(case, case.expected, outcome).exact, task.name


def test_a_wrong_solution_fails() -> None:
    sandbox = Sandbox(allow_unconfined=True)
    for task in read_benchmark(DATA)["single-line"][:3]:
        case = place_cursor(task, "given", lambda text: [], seed=0)
        assert sandbox.run(case.program("    return None"), task.test or "") == "failed"


def test_the_last_newline_of_whole_lines_stays_behind_the_cursor() -> None:
    tasks = read_benchmark(DATA)
    for task in (*tasks["single-line"], *tasks["multi-line"]):
        assert not task.middle.endswith("\n")
        assert task.after.startswith("\n")
    assert not any("\n" in task.middle for task in tasks["single-line"])
    assert any("\n" in task.middle for task in tasks["multi-line"])


def test_a_file_is_read_packed_or_not(tmp_path: Path) -> None:
    plain = DATA / "HumanEval-RandomSpanInfilling.jsonl"
    packed = tmp_path / "some.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_benchmark(packed) == read_benchmark(plain)
    assert list(read_benchmark(plain)) == ["random-span"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{}", "not a task"),
        ("a.jsonl", b"[]", "not a task"),
        ("a.jsonl", b"\xff", "cannot be read"),
        ("a.jsonl.gz", b"no gzip", "cannot be read"),
        ("a.jsonl", b"", "has no tasks"),
    ],
)
def test_what_is_no_benchmark_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_benchmark(tmp_path / name)


def test_a_folder_without_its_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"HumanEval-SingleLineInfilling\.jsonl"):
        read_benchmark(tmp_path)


def test_another_kind_of_task_is_named(tmp_path: Path) -> None:
    record = json.loads((DATA / "HumanEval-RandomSpanInfilling.jsonl").read_text(encoding="utf-8").splitlines()[0])
    record["task_id"] = "OtherInfilling/HumanEval/0/L0"
    file = tmp_path / "multi.jsonl"
    file.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(BadInput, match="MultiLineInfilling"):
        read_benchmark(file)

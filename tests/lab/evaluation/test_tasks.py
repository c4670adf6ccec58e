"""Tasks: the cursor and the prompts of each format, the benchmark's files, and tasks cut from files, the same ones."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lsp_server.documents.documents import Document, Position
from lsp_server.prompts.anchors import StickyEdges, WindowBudget, lay
from midfill_lab.evaluation.runner import score
from midfill_lab.evaluation.sandbox import Sandbox
from midfill_lab.evaluation.tasks import (
    CUTS,
    MOST_LINES,
    SPAN_CHARS,
    SPLITS,
    Case,
    Cut,
    Split,
    Task,
    cut_files,
    lay_prompt,
    place_cursor,
    read_benchmark,
)
from protocol.errors import BadInput

BEFORE = "".join(f"line_{number} = {number}\n" for number in range(20))
LINE = Task("a line", "single-line", BEFORE, "    total += value", "\nprint(total)\n", "assert True")
LINES = Task("lines", "multi-line", BEFORE, "    total += value\n    count += 1", "\nprint(total)\n", "assert True")
SPAN = Task("a span", "random-span", BEFORE + "tot", "al = 1\nval", "ue = 2\n")


def words(text: str) -> list[int]:
    """Stands for a tokenizer: a token ends before each space and at the end."""
    return [index for index in range(1, len(text)) if text[index] == " "] + [len(text)]


@pytest.mark.parametrize(
    ("task", "cut", "places"),
    [
        (LINE, "given", {""}),  # the beginning of the middle
        (SPAN, "given", {""}),
        (SPAN, "character", {""}),  # it begins at a random character already
        (SPAN, "token", {"al"}),  # the next boundary
        (LINE, "character", {LINE.middle[:end] for end in range(4, len(LINE.middle))}),  # anywhere in the line's code
        (LINES, "character", {LINES.middle[:end] for end in range(4, LINES.middle.index("\n"))}),  # in the first line
        (LINE, "token", {"    total", "    total +="}),
    ],
)
def test_where_the_cursor_may_stand(task: Task, cut: Cut, places: set[str]) -> None:
    typed = {place_cursor(replace(task, name=str(number)), cut, words, 0).typed for number in range(300)}
    assert typed == places


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("task", [LINE, LINES, SPAN, replace(LINE, middle=""), replace(LINE, middle="   ")])
def test_the_same_seed_puts_it_at_the_same_place(cut: Cut, task: Task) -> None:
    case = place_cursor(task, cut, words, 7)
    assert case == place_cursor(task, cut, words, 7)
    assert case.typed + case.expected == task.middle


def test_a_program_is_the_completed_text() -> None:
    assert Case(LINE, "    total").program(" += value") == f"{BEFORE}    total += value\nprint(total)\n\n"


def test_every_format_shows_the_same_text() -> None:
    case = Case(LINE, "    tot")
    psm, spm, efim = (lay_prompt(case, form, WindowBudget()) for form in ("psm", "spm", "efim"))
    assert psm.prefix == spm.prefix == efim.prefix + efim.increment == BEFORE + "    tot"
    assert psm.suffix == spm.suffix == efim.suffix == "\nprint(total)\n"
    assert (psm.order, spm.order, efim.order) == ("psm", "spm", "psm")
    assert psm.increment == spm.increment == ""


@pytest.mark.parametrize("before", [BEFORE, "a = 1\n", "", "x" * 600 + "\n" + BEFORE[:22], "y = 2\n" + "z" * 400 + "\n"])
def test_the_anchor_is_where_the_language_server_lays_it(before: str) -> None:
    budget = WindowBudget(increment_tokens=200)
    document = Document.from_text("file:///a.py", "python", 0, before + "    tot" + LINE.after)
    anchor, _ = lay(document, Position(before.count("\n"), 7), budget, StickyEdges())
    prompt = lay_prompt(Case(replace(LINE, before=before), "    tot"), "efim", budget)
    assert prompt.prefix == anchor.prefix
    assert prompt.suffix == anchor.suffix


def test_windows_are_whole_lines() -> None:
    budget = WindowBudget(prefix_tokens=10, suffix_tokens=3, chars_per_token=3.0)
    prompt = lay_prompt(Case(replace(LINE, after="\nab\ncdefghij\n"), "    tot"), "psm", budget)
    assert prompt.prefix == "line_19 = 19\n    tot"
    assert prompt.suffix == "\nab\n"


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


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    for name in ("one.py", "two.py", "tests/test_one.py", "_vendor/other.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stem = path.stem
        lines = (f"def {stem}_{number}(value):\n    return value + {number}\n\n\n" for number in range(20))
        path.write_text("".join(lines), encoding="utf-8")
    (folder / "three.py").write_bytes(b"not = 'UTF-8'\xff\n" * 50)
    (folder / "notes.txt").write_text("no code\n" * 50, encoding="utf-8")
    return folder


@pytest.mark.parametrize("split", SPLITS[:3])
def test_the_same_seed_cuts_the_same_tasks(package: Path, split: Split) -> None:
    tasks = cut_files([package], split, 10, seed=1)
    assert tasks == cut_files([package], split, 10, seed=1)
    assert tasks != cut_files([package], split, 10, seed=2)
    assert len({task.name for task in tasks}) == len(tasks) >= 8


@pytest.mark.parametrize("split", SPLITS[:3])
def test_a_task_is_a_text_in_three_parts(package: Path, split: Split) -> None:
    for task in cut_files([package], split, 20, seed=0):
        name = task.name.removeprefix("package/").partition(".py")[0] + ".py"
        assert task.before + task.middle + task.after == (package / name).read_text(encoding="utf-8")
        assert task.test is None


def test_files_that_training_would_not_take_are_left_out(package: Path) -> None:
    names = {task.name.partition(":")[0] for task in cut_files([package], "single-line", 30, seed=0)}
    assert names == {"package/one.py", "package/two.py"}


def test_lines_are_filled_and_end_before_their_newline(package: Path) -> None:
    for task in cut_files([package], "single-line", 30, seed=0):
        assert task.middle.strip()
        assert "\n" not in task.middle
        assert task.after.startswith("\n")


def test_several_lines_begin_and_end_with_code(package: Path) -> None:
    tasks = cut_files([package], "multi-line", 30, seed=0)
    assert tasks
    for task in tasks:
        lines = task.middle.split("\n")
        assert 2 <= len(lines) <= MOST_LINES
        assert lines[0].strip()
        assert lines[-1].strip()
        assert task.before == "" or task.before.endswith("\n")
        assert task.after.startswith("\n")


def test_spans_have_their_size(package: Path) -> None:
    tasks = cut_files([package], "random-span", 40, seed=0)
    assert all(len(task.middle) <= SPAN_CHARS[1] for task in tasks)
    assert any("\n" in task.middle for task in tasks)


def test_no_more_tasks_than_there_are_lines(package: Path) -> None:
    assert len(cut_files([package], "single-line", 1000, seed=0)) == 80


def test_a_folder_without_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no usable Python files"):
        cut_files([tmp_path], "single-line", 10, seed=0)
    with pytest.raises(BadInput, match="not a folder"):
        cut_files([tmp_path / "missing"], "single-line", 10, seed=0)

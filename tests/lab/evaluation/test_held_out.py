"""Tasks cut from files: from which, how many, and the same ones again."""

from __future__ import annotations

from pathlib import Path

import pytest

from midfill_lab.evaluation.held_out import MOST_LINES, SPAN_CHARS, cut_files
from midfill_lab.evaluation.tasks import SPLITS, Split
from protocol.errors import BadInput


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

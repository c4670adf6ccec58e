from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from midfill_lab.training.errors import CheckpointError
from midfill_lab.training.run.checkpoints import KEPT, RunFolder
from tests.lab.training.runs import AFTER_EVERY_STEP, OPTIONS, steps, train


@pytest.fixture(scope="module")
def run(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    root = tmp_path_factory.mktemp("run")
    train(corpus_folder, root, steps(4, AFTER_EVERY_STEP))
    return RunFolder(root)


def test_only_the_newest_checkpoints_stay(run: RunFolder) -> None:
    assert [path.name for path in sorted(run.root.glob("step-*"))] == ["step-00000003", "step-00000004"]
    assert KEPT == 2


def test_what_was_cut_off_while_being_written_is_no_checkpoint(run: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(run.root, tmp_path, dirs_exist_ok=True)
    (tmp_path / "step-00000004").rename(tmp_path / "partial")
    latest = RunFolder(tmp_path).latest()
    assert latest is not None
    assert latest.name == "step-00000003"


def test_a_run_is_not_resumed_with_another_recipe(run: RunFolder, corpus_folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"seed = 0, not 7"):
        run.claim(corpus_folder, replace(OPTIONS, seed=7))


def test_a_recipe_that_is_changed_on_purpose_is_remembered(run: RunFolder, corpus_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run.root, tmp_path, dirs_exist_ok=True)
    copy, examples = RunFolder(tmp_path), replace(OPTIONS.examples, fim_rate=0.5)
    copy.claim(corpus_folder, replace(OPTIONS, examples=examples), change_recipe=True)
    first, second = copy.read_recipes()
    assert (first.step, second.step) == (0, 4)
    assert first.changes_to(second.options) == {"examples.fim_rate": (0.85, 0.5)}


def test_a_run_is_not_resumed_on_another_corpus(run: RunFolder, corpus_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        run.claim(tmp_path, OPTIONS)


def test_limits_may_change(run: RunFolder, corpus_folder: Path) -> None:
    run.claim(corpus_folder, steps(100))


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).latest() is None


def test_a_line_of_the_log_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append_log({"step": 1})
    with folder.log.open("a") as log:
        log.write('{"step": 2, "loss"')
    folder.append_log({"step": 3})
    folder.append_log({"step": 4})
    assert [record["step"] for record in folder.logged()] == [1, 3, 4]

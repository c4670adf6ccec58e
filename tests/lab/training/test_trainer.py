from __future__ import annotations

import math
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from midfill_lab.training import trainer as trainer_module
from midfill_lab.training.machine import open_device
from midfill_lab.training.model import Batch
from midfill_lab.training.options import CheckpointError, Quantization, Stage, TrainingOptions
from midfill_lab.training.rounding import kind_of, round_trip
from midfill_lab.training.trainer import KEPT, WEIGHTS, RunFolder, StepReport, Trainer, read_progress
from midfill_lab.training.vocabulary import load_vocabulary
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


def test_a_line_of_the_log_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append_log({"step": 1})
    with folder.log.open("a") as log:
        log.write('{"step": 2, "loss"')
    folder.append_log({"step": 3})
    folder.append_log({"step": 4})
    assert [record["step"] for record in folder.logged()] == [1, 3, 4]


@pytest.fixture(scope="module")
def uninterrupted(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[StepReport]]:
    run = tmp_path_factory.mktemp("uninterrupted")
    return run, train(corpus_folder, run)


def assert_same_weights(first: Path, second: Path) -> None:
    checkpoints = [RunFolder(run).latest() for run in (first, second)]
    one, other = (load_file(checkpoint / WEIGHTS) for checkpoint in checkpoints if checkpoint)
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)


def test_a_run_goes_through_its_stages_and_ends(uninterrupted: tuple[Path, list[StepReport]]) -> None:
    run, reports = uninterrupted
    assert [report.progress.step for report in reports] == list(range(1, 9))
    assert [report.window for report in reports] == [64] * 4 + [128] * 4
    assert reports[-1].progress.windows == {64: 16, 128: 8}
    assert reports[-1].progress.tokens == 8 * OPTIONS.batch_tokens
    latest = RunFolder(run).latest()
    assert latest is not None
    assert read_progress(latest) == reports[-1].progress


def test_a_killed_run_resumes_as_if_nothing_had_happened(
    corpus_folder: Path, tmp_path: Path, uninterrupted: tuple[Path, list[StepReport]]
) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.lab.training.runs", str(corpus_folder), str(tmp_path)]
    command += ["8", "5"]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("5 "):
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    assert process.returncode == -signal.SIGKILL
    reports = train(corpus_folder, tmp_path)
    assert [report.progress.step for report in reports][-1] == 8
    assert 4 <= reports[0].progress.step <= 6
    assert reports[-1].progress.windows == uninterrupted[1][-1].progress.windows
    assert_same_weights(tmp_path, uninterrupted[0])


def test_time_is_counted_over_resumes(corpus_folder: Path, tmp_path: Path) -> None:
    first = train(corpus_folder, tmp_path, steps(2))
    second = train(corpus_folder, tmp_path, steps(4))
    assert [report.progress.step for report in second] == [3, 4]
    assert second[0].progress.seconds > first[-1].progress.seconds


def test_a_run_goes_on_with_other_stages_and_reads_no_window_twice(corpus_folder: Path, tmp_path: Path) -> None:
    train(corpus_folder, tmp_path, steps(6))
    stages = Stage(32, 0.5), Stage(64, 0.25), Stage(128, 0.25)
    reports = train(corpus_folder, tmp_path, replace(OPTIONS, stages=stages, max_steps=12), change_recipe=True)
    assert [report.window for report in reports] == [64] * 3 + [128] * 3
    assert reports[-1].progress.windows == {64: 24, 128: 12}


def test_a_finished_run_makes_no_further_step(corpus_folder: Path, uninterrupted: tuple[Path, list[StepReport]]) -> None:
    assert train(corpus_folder, uninterrupted[0]) == []


QUANTIZED = replace(OPTIONS, quantization=Quantization("q4_0", "q8_0"), quantized_share=0.5)


def test_the_last_part_of_a_run_computes_with_rounded_weights(corpus_folder: Path, tmp_path: Path) -> None:
    trainer = stopped_after(corpus_folder, tmp_path / "run", QUANTIZED, 8)
    state, masters = dict(trainer.model.named_parameters()), trainer.trained.named
    for name, weights in state.items():
        kind = kind_of(name, weights, Quantization())
        expected = masters[name] if kind is None else round_trip(masters[name].detach(), kind)
        assert weights.equal(expected.bfloat16()), name
    assert any(not state[name].equal(masters[name].bfloat16()) for name in state)


def test_a_run_through_a_quantizer_resumes_as_if_nothing_had_happened(corpus_folder: Path, tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train(corpus_folder, whole, QUANTIZED)
    stopped_after(corpus_folder, halves, QUANTIZED, 6)
    assert [report.progress.step for report in train(corpus_folder, halves, QUANTIZED)] == [7, 8]
    assert_same_weights(whole, halves)


def stopped_after(corpus: Path, run: Path, options: TrainingOptions, last: int) -> Trainer:
    """Train as `train` does, but stop after a step, as a signal or a limit of time does."""
    folder = RunFolder(run)
    folder.claim(corpus, options)
    vocabulary = load_vocabulary(corpus / "tokenizer.json")
    trainer = Trainer(folder, corpus, vocabulary, options, open_device(cpu=True))
    trainer.run(lambda _: None, lambda _: None, lambda: trainer.progress.step >= last)
    return trainer


def test_a_run_by_the_clock_ends_in_time_with_a_rate_near_zero(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = count(step=2.5)  # seconds between two looks at the clock
    monkeypatch.setattr("midfill_lab.training.trainer.time", SimpleNamespace(monotonic=lambda: next(now)))
    options = replace(OPTIONS, minutes=3, decay=0.5, warmup_steps=4, checkpoint_minutes=math.inf)
    reports = train(corpus_folder, tmp_path, options)
    assert len(reports) == 24  # three looks for each step
    assert reports[-1].progress.seconds == 180
    assert [report.window for report in reports] == [64] * 12 + [128] * 12
    factors = [report.rate_factor for report in reports]
    assert factors[:4] == [0.125, 0.375, 0.625, 0.875]
    assert factors[4:11] == [1.0] * 7
    assert all(later < earlier for earlier, later in pairwise(factors[12:]))
    assert 0 < factors[-1] < 0.1
    assert not list(tmp_path.glob("step-*"))


def test_what_does_not_fit_into_memory_is_computed_in_parts(
    corpus_folder: Path, tmp_path: Path, uninterrupted: tuple[Path, list[StepReport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trainer_module.token_loss
    sizes: list[int] = []

    def small(model: nn.Module, batch: Batch, *others: Any) -> torch.Tensor:
        sizes.append(len(batch.ids))
        if len(batch.ids) > 1:
            raise torch.OutOfMemoryError
        return whole(model, batch, *others)

    monkeypatch.setattr(trainer_module, "token_loss", small)
    reports = train(corpus_folder, tmp_path)
    assert sizes[:7] == [4, 2, 1, 1, 1, 1, 1]
    expected = [report.loss for report in uninterrupted[1]]
    assert [report.loss for report in reports] == pytest.approx(expected, rel=2e-3)  # bf16 adds up in another order


def test_a_window_that_does_not_fit_alone_is_an_error(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(trainer_module, "token_loss", never)
    with pytest.raises(torch.OutOfMemoryError):
        train(corpus_folder, tmp_path)


def test_a_checkpoint_of_another_version_is_refused(corpus_folder: Path, tmp_path: Path) -> None:
    train(corpus_folder, tmp_path, steps(1))
    (tmp_path / "step-00000001" / WEIGHTS).rename(tmp_path / "step-00000001" / "model.safetensors")
    with pytest.raises(CheckpointError, match="step-00000001 is of another version"):
        train(corpus_folder, tmp_path, steps(2))

"""Signals during a training, also while the interpreter is busy in a long computation of a library."""

from __future__ import annotations

import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from midfill_lab.training.machine import Processes, join_processes
from midfill_lab.training.options import OptionError
from midfill_lab.training.trainer import RunFolder, Trainer, read_progress
from midfill_lab.training.vocabulary import Vocabulary
from tests.lab.training.runs import OPTIONS, steps, train

SIZE = 200 * 2**20
PROGRAM = f"""
import psutil
from midfill_lab.training.machine import keep_freed_memory
{{call}}
kept = b"x" * {SIZE}
del kept
print(psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_freed_memory_stays_with_the_process() -> None:
    given_back, kept = (
        int(subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, check=True).stdout)
        for call in ("", "keep_freed_memory()")
    )
    assert kept - given_back > SIZE // 2


def train_on_two(corpus: Path, run: Path) -> list[float]:
    """The whole run on two processes; the losses of its steps."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.lab.training.runs", str(corpus), str(run), "8", "2"]
    root = Path(__file__).parents[3]
    finished = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return [float(line.split()[1]) for line in finished.stdout.splitlines()]


def test_two_processes_learn_what_one_does_and_one_resumes_their_checkpoint(
    corpus_folder: Path, tmp_path: Path
) -> None:
    alone = train(corpus_folder, tmp_path / "alone", steps(8))
    together = tmp_path / "together"
    assert train_on_two(corpus_folder, together) == pytest.approx([report.loss for report in alone], rel=1e-3)
    last = together / "step-00000008"
    assert read_progress(last).windows == alone[-1].progress.windows
    shutil.rmtree(last)
    resumed = train(corpus_folder, together, steps(8))
    assert [report.progress.step for report in resumed] == [8]
    assert resumed[0].loss == pytest.approx(alone[-1].loss, rel=1e-3)


def test_gradients_are_averaged_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(tensor: torch.Tensor) -> None:
        """The other process has gradients of zero."""

    monkeypatch.setattr(torch.distributed, "all_reduce", add)
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))]
    parameters[0].grad = torch.tensor([2.0, -4.0])
    Processes(torch.device("cpu"), count=2).average_gradients(parameters)
    assert parameters[0].grad.tolist() == [1.0, -2.0]
    assert parameters[1].grad is None


def test_windows_that_cannot_be_shared_equally_are_refused(
    corpus_folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    processes = Processes(torch.device("cpu"), count=3)
    with pytest.raises(OptionError, match="4 windows per step cannot be divided equally among 3 processes"):
        Trainer(RunFolder(tmp_path), corpus_folder, vocabulary, OPTIONS, processes)


def test_half_precision_of_16_bits_is_refused_on_a_cpu() -> None:
    with pytest.raises(OptionError, match="fp16 needs a GPU, and the device is cpu"):
        join_processes("fp16", cpu=True)


BUSY = """
import hashlib
from midfill_lab.training.machine import stops_on_signals
with stops_on_signals(again=True, heard=lambda: print("stopping", flush=True)):
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # half an hour without a step of the interpreter
"""


def test_a_second_ctrl_c_ends_a_computation_that_the_first_is_heard_in() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "busy\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(100) == 130
        finally:
            process.kill()

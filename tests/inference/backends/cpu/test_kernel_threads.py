from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from inference.backends.model import Chunk
from tests.inference.backends.cpu.models import RandomModel, Shape, forward

pytestmark = pytest.mark.usefixtures("compiled")


def threads_of_this_process() -> set[str]:
    gc.collect()  # the decoders of other tests
    return {task.name for task in Path("/proc/self/task").iterdir()}


def cpu_seconds_of_a_rest() -> float:
    before = time.process_time()
    time.sleep(0.2)
    return time.process_time() - before


def test_idle_threads_use_no_cpu() -> None:
    model = RandomModel(Shape())
    kernel = model.kernel(threads=4)
    forward(kernel, [Chunk([1, 2, 3], 0, model.workspace(), 1)])[0]
    assert any(cpu_seconds_of_a_rest() < 0.02 for _ in range(20))  # threads spin for a while before they sleep


def test_calls_from_several_threads_wait_for_each_other() -> None:
    model = RandomModel(Shape())
    kernel = model.kernel(threads=2)
    expected = forward(kernel, [Chunk([1, 2, 3], 0, model.workspace(), 1)])[0]

    def again(_: int) -> torch.Tensor:
        return forward(kernel, [Chunk([1, 2, 3], 0, model.workspace(), 1)])[0]

    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(logits, expected) for logits in pool.map(again, range(40)))


def test_a_call_does_not_hold_the_interpreter() -> None:
    model = RandomModel(Shape(hidden=256, intermediate=2048, vocabulary=4000))
    kernel = model.kernel(threads=1, level="portable")
    workspace = model.workspace()
    done = threading.Event()

    def forwards() -> None:
        for _ in range(20):
            kernel.forward([Chunk([1] * 32, 0, workspace, 1)])
        done.set()

    worker = threading.Thread(target=forwards)
    worker.start()
    turns = 0
    while not done.is_set():
        time.sleep(0)
        turns += 1
    worker.join()
    assert turns > 20


def test_a_process_ends_beside_a_call() -> None:
    program = (
        "import threading\n"
        "from inference.backends.model import Chunk\n"
        "from tests.inference.backends.cpu.models import RandomModel, Shape\n"
        "model = RandomModel(Shape(hidden=256, intermediate=2048, vocabulary=4000))\n"
        "kernel, workspace, begun = model.kernel(threads=2), model.workspace(), threading.Event()\n"
        "def go():\n"
        "    while True:\n"
        "        kernel.forward([Chunk([1] * 32, 0, workspace, 1)])\n"
        "        begun.set()\n"
        "threading.Thread(target=go, daemon=True).start()\n"
        "begun.wait()\n"
    )
    for _ in range(2):  # one in six survived
        subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[4])


def test_a_forgotten_decoder_ends_its_threads() -> None:
    model = RandomModel(Shape())
    before = threads_of_this_process()
    kernel = model.kernel(threads=3)
    started = threads_of_this_process() - before
    assert len(started) == 2
    del kernel
    assert not started & threads_of_this_process()


def test_no_threads_is_an_error() -> None:
    with pytest.raises(ValueError, match="threads must be at least 1, not 0"):
        RandomModel(Shape()).kernel(threads=0)

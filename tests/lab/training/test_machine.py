"""Signals during a training, also while the interpreter is busy in a long computation of a library."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys

import pytest

from midfill_lab.training.machine import open_device
from midfill_lab.training.options import OptionError

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


def test_a_process_of_several_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="start it alone, not as one of 2"):
        open_device(cpu=True)


def test_half_precision_of_16_bits_is_refused_on_a_cpu() -> None:
    with pytest.raises(OptionError, match="fp16 needs a GPU, and the device is cpu"):
        open_device("fp16", cpu=True)


BUSY = """
import hashlib
from midfill_lab.training.machine import stops_on_signals
with stops_on_signals(lambda: print("stopping", flush=True)):
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

"""Signals during a training, also while the interpreter is busy in a long computation of a library."""

from __future__ import annotations

import signal
import subprocess
import sys

BUSY = """
import hashlib
from midfill_lab.training.interrupts import stops_on_signals
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

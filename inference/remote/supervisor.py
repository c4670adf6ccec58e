"""Runs a program until it ends or standard input does: `python supervisor.py FILE PROGRAM ARGUMENTS`.

FILE is what the program leaves behind, such as its socket, and is removed at the end; empty for none. The core starts
llama-server through it and holds the other end of the pipe. The system closes the pipe however the core ends, so the
program never outlives it. Imports few modules of the standard library, since it stays in memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

TERMINATE_S = 5.0
"""Seconds that the program may take to end before it is killed."""


def main(leftover: str, command: list[str]) -> int:
    """The program's exit status; 127 if it cannot be started."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error}\n")
        return 127
    threading.Thread(target=_end_with_input, args=(process,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the core, which ends the input
    status = process.wait()
    with suppress(OSError):
        os.unlink(leftover)  # noqa: PTH108 - as above
    return status


def _end_with_input(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):  # not through sys.stdin, whose lock would be held when this process ends
        pass
    process.terminate()
    try:
        process.wait(TERMINATE_S)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

"""The child process that runs one untrusted program: it takes away what it can, runs, and says whether it got through.

Run by `midfill.evaluation.sandbox` as a script with nothing but the standard library. A line of JSON comes on stdin:
the program, its limits and a password; the password goes to stdout once the program has ended without an exception.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

# What Python reports before it does it (sys.addaudithook) and a function under test has no business with. Reading
# files stays possible, imports need it; what was read cannot leave.
_FORBIDDEN = (
    *("socket.", "subprocess.", "ctypes.", "shutil.", "resource.", "syslog.", "sqlite3.", "pty.", "signal.pthread"),
    *("os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile", "os.kill", "os.putenv"),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chdir"),
    *("os.chmod", "os.chown", "os.chflags", "os.utime", "os.setxattr", "os.removexattr", "os.lockf"),
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook: PermissionError for what a program may not do. Once set it cannot be taken away."""
    if event.startswith(_FORBIDDEN):
        raise PermissionError(f"{event} is not allowed here")
    if event == "open" and arguments[2] & _WRITING:
        raise PermissionError(f"writing {arguments[0]!r} is not allowed here")


def limit(cpu_seconds: int, wall_seconds: int, memory_bytes: int) -> None:
    """Limits of the operating system, which hold for every process: no new processes, and no file that grows."""
    # One second more for the hard limit: at the soft one the kernel sends SIGXCPU, at the hard one SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    # Should the parent be gone by then, nobody else would end a program that sleeps.
    signal.alarm(wall_seconds + 1)


def main() -> None:
    """Run the program that stands on stdin."""
    request = json.loads(sys.stdin.buffer.readline())
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    program = compile(request["program"], "<completion>", "exec")
    limit(request["cpu_seconds"], request["wall_seconds"], request["memory_bytes"])
    sys.addaudithook(refuse)
    exec(program, {"__name__": "completion"})
    # Not by the exit status alone: a program that calls exit(0) before its tests has not passed them.
    os.write(answer, request["password"].encode())


if __name__ == "__main__":
    main()

"""Running generated code in a child process with limits of time, memory, files, processes and network."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from protocol.errors import BadInput

Outcome = Literal["passed", "failed", "timed out"]

GUARD = Path(__file__).with_name("guard.py")
NOBODY = 65534
_PROBE = "import math\nassert math.floor(1.5) == 1\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use. Processor time decides, so that a busy machine fails nobody; a sleeper meets the wall.

    The benchmark's own harness gives a program 3 seconds of wall time.
    """

    cpu_seconds: int = 4
    wall_seconds: int = 20
    memory_bytes: int = 2**30


@dataclass(frozen=True, slots=True)
class Confinement:
    """A way to start the child: a command before Python's own, and what it achieves, for people."""

    wrapper: tuple[str, ...]
    network: str
    processes: str


class Sandbox:
    """Runs programs one at a time, with the strictest confinement that this machine permits."""

    def __init__(self, limits: Limits | None = None) -> None:
        """BadInput where the machine cannot confine a program at all."""
        if os.name != "posix":
            raise BadInput("generated code is run on POSIX systems only: elsewhere its limits cannot be set")
        self._limits = limits or Limits()
        self.confinement = self._strictest()

    def run(self, program: str) -> Outcome:
        """Whether the program gets to its end without an exception."""
        return self._run(program, self.confinement)

    @property
    def description(self) -> str:
        """What holds for every program, in words."""
        limits = self._limits
        return (
            f"Each program: own process group, empty environment and folder, {limits.cpu_seconds} s of processor time, "
            f"{limits.wall_seconds} s in all, {limits.memory_bytes // 2**20} MB; no file is written; "
            f"network: {self.confinement.network}; new processes: {self.confinement.processes}"
        )

    def _strictest(self) -> Confinement:
        for confinement in _confinements():
            if self._run(_PROBE, confinement) == "passed":
                return confinement
        raise BadInput(f"not even a harmless program runs under the limits on this machine ({sys.executable})")

    def _run(self, program: str, confinement: Confinement) -> Outcome:
        password = secrets.token_hex()
        limits = self._limits
        request = {
            "program": program,
            "password": password,
            "cpu_seconds": limits.cpu_seconds,
            "wall_seconds": limits.wall_seconds,
            "memory_bytes": limits.memory_bytes,
        }
        python = (sys.executable, "-I", "-S", "-B", "-X", "utf8", str(GUARD))
        with tempfile.TemporaryDirectory(prefix="midfill-eval-") as folder, tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(request).encode())
            stdin.seek(0)
            child = subprocess.Popen(
                [*confinement.wrapper, *python],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                start_new_session=True,
            )
            return _outcome(child, password.encode(), limits.wall_seconds)


def _outcome(child: subprocess.Popen[bytes], password: bytes, wall_seconds: int) -> Outcome:
    """Wait for the child, and leave none of its processes behind."""
    assert child.stdout is not None
    with child.stdout:
        try:
            child.wait(wall_seconds)
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            _kill_group(child)
        if child.returncode == -signal.SIGXCPU:
            return "timed out"
        # No more than that is read: what a program may have written beside it does not matter.
        answer = os.read(child.stdout.fileno(), len(password))
    return "passed" if child.returncode == 0 and secrets.compare_digest(answer, password) else "failed"


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all of them have ended
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _confinements() -> list[Confinement]:
    """Ways to start the child, the strictest first."""
    is_root = os.geteuid() == 0
    by_python, by_system = "refused to Python code only", "refused by the system"
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    networks: list[tuple[str, tuple[str, ...]]] = [(by_python, ())]
    users: list[tuple[str, tuple[str, ...]]] = [(by_python if is_root else by_system, ())]
    if unshare is not None:
        command = (unshare, "--net") if is_root else (unshare, "--user", "--net")
        networks.insert(0, ("none (a namespace of its own)", command))
    if is_root and setpriv is not None:
        # The kernel exempts root from the limit of processes, by its real user and by its capabilities. The
        # effective user stays: the interpreter may lie where only root can read.
        bare = (setpriv, "--ruid", str(NOBODY), "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs")
        users.insert(0, (by_system, bare))
    return [
        Confinement((*net_command, *user_command), network, processes)
        for network, net_command in networks
        for processes, user_command in users
    ]

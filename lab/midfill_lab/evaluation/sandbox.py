"""Judges generated code: starts the candidate and the examiner, confined, and reads the verdict.

Both processes run `guard.py`. Bubblewrap confines them, or namespaces of their own if the kernel permits them; without
either, code runs only on explicit demand.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from midfill_lab.evaluation.guard import VERDICT
from protocol.errors import BadInput

Outcome = Literal["passed", "failed", "timed out"]

_GUARD = Path(__file__).with_name("guard.py").read_text(encoding="utf-8")
_PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)  # of a virtual environment: its own
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store", sys.base_prefix, sys.base_exec_prefix)
_PROBE = ("import hashlib, random\ndef one(): return 1", "import random\nassert one() == 1")  # reads Python's files
_OUT_OF_TIME = (-signal.SIGXCPU, 128 + signal.SIGXCPU)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one program. Processor time counts first, so that a busy machine fails no program that computes.

    The wall time ends a sleeping program. The benchmark's own harness gives a program 3 seconds of wall time.
    """

    cpu_seconds: int = 4
    wall_seconds: int = 20
    memory_bytes: int = 2**30


@dataclass(frozen=True, slots=True)
class Confinement:
    """A way to start a child: the command before Python's own, and whether the guard enters namespaces by itself."""

    name: str
    command: tuple[str, ...] = ()
    confined: bool = True
    by_guard: bool = False


UNCONFINED = Confinement("none", confined=False)


class Sandbox:
    """Judges programs one at a time, with the first confinement that works on this machine."""

    def __init__(
        self, limits: Limits | None = None, *, allow_unconfined: bool = False, candidates: tuple[Confinement, ...] | None = None
    ) -> None:
        """BadInput if no confinement works (and `allow_unconfined` is not given), or the system is not POSIX."""
        if os.name != "posix":
            raise BadInput("midfill runs generated code on POSIX systems only, where it can limit the code's resources")
        self._limits = limits or Limits()
        offered = confinements() if candidates is None else candidates
        self.confinement = self._first_working((*offered, UNCONFINED) if allow_unconfined else offered)

    @property
    def description(self) -> str:
        """The restrictions that confine every program, and those that do not hold, as text."""
        limits = self._limits
        held = f"{limits.cpu_seconds} s of CPU time, {limits.wall_seconds} s in all, {limits.memory_bytes >> 20} MB"
        if self.confinement.confined:
            return (
                f"Confined by {self.confinement.name}: no network, no files but Python's and the system's libraries "
                f"(read-only), no view of other processes, no new processes, not root; {held}"
            )
        root = ", as root" if os.geteuid() == 0 else ""
        return (
            f"NOT CONFINED: the code can read, change and delete every file that you can{root}, use the network and "
            f"signal your processes. Only these limits hold: {held}"
        )

    def run(self, program: str, tests: str = "") -> Outcome:
        """Whether the program runs, and `tests`, which call its functions from another process, raise nothing.

        Arguments and results cross as plain data: numbers, texts, and Python's own collections of these.
        """
        return self._run(program, tests, self.confinement)

    def _first_working(self, offered: tuple[Confinement, ...]) -> Confinement:
        for confinement in offered:
            if self._run(*_PROBE, confinement) == "passed":
                return confinement
        tried = ", ".join(confinement.name for confinement in offered) or "nothing"
        raise BadInput(
            f"this machine cannot confine generated code (tried: {tried}): install bubblewrap, or omit "
            "--allow-code-execution; --without-sandbox runs the code with all your permissions"
        )

    def _run(self, program: str, tests: str, confinement: Confinement) -> Outcome:
        ours, theirs = socket.socketpair()
        deadline = time.monotonic() + self._limits.wall_seconds
        with tempfile.TemporaryDirectory(prefix="midfill-eval-") as folder:
            with ours, theirs:
                candidate = self._start("candidate", program, theirs, confinement, folder)
                examiner = self._start("examiner", tests, ours, confinement, folder)
            try:
                return _outcome(candidate, examiner, deadline)
            finally:
                _kill(candidate)
                _kill(examiner)

    def _start(
        self, part: str, text: str, channel: socket.socket, confinement: Confinement, folder: str
    ) -> subprocess.Popen[bytes]:
        request = {
            "part": part,
            "text": text,
            "channel": channel.fileno(),
            "confine": confinement.by_guard,
            "drop": confinement.confined,
            "visible": visible_folders(),
            "root": folder,
            "cpu_seconds": self._limits.cpu_seconds,
            "wall_seconds": self._limits.wall_seconds,
            "memory_bytes": self._limits.memory_bytes,
        }
        with tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(request).encode())
            stdin.seek(0)
            return subprocess.Popen(
                [*confinement.command, _PYTHON, "-I", "-S", "-B", "-X", "utf8", "-c", _GUARD],
                stdin=stdin,
                stdout=subprocess.PIPE if part == "examiner" else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                pass_fds=(channel.fileno(),),
                start_new_session=True,
            )


def _outcome(candidate: subprocess.Popen[bytes], examiner: subprocess.Popen[bytes], deadline: float) -> Outcome:
    """Wait for the examiner; the candidate's status matters only if it ran out of CPU time."""
    assert examiner.stdout is not None
    with examiner.stdout as stdout:
        try:
            examiner.wait(deadline - time.monotonic())
            if examiner.returncode == 0 and os.read(stdout.fileno(), len(VERDICT)) == VERDICT:
                return "passed"
            candidate.wait(deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            return "timed out"
    return "timed out" if {candidate.returncode, examiner.returncode} & set(_OUT_OF_TIME) else "failed"


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def visible_folders() -> list[str]:
    """The folders that a confined program can read: Python's own and the system's libraries, outermost only."""
    found = {folder for folder in _LIBRARIES if Path(folder).is_dir()}
    return sorted(folder for folder in found if not any(Path(folder).is_relative_to(other) for other in found - {folder}))


def confinements() -> tuple[Confinement, ...]:
    """The confinements to try on this system, the best first."""
    bubblewrap = shutil.which("bwrap")
    by_bubblewrap = [Confinement("bubblewrap", _bubblewrap(bubblewrap))] if bubblewrap else []
    by_guard = [Confinement("namespaces", by_guard=True)] if sys.platform == "linux" else []
    return (*by_bubblewrap, *by_guard)


def _bubblewrap(program: str) -> tuple[str, ...]:
    """The command of bubblewrap; root stays root until the guard drops it, since its interpreter may be root's own."""
    if os.geteuid() == 0:
        spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--cap-drop", "ALL"]
        spaces += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        spaces = ["--unshare-all", "--cap-drop", "ALL"]
    # Named one by one, since bubblewrap makes the parents of a mount accessible to root alone.
    parents = sorted({str(parent) for folder in visible_folders() for parent in Path(folder).parents} - {"/"})
    folders = [argument for parent in parents for argument in ("--dir", parent)]
    mounts = [argument for folder in visible_folders() for argument in ("--ro-bind", folder, folder)]
    return (program, *spaces, "--die-with-parent", *folders, *mounts, "--remount-ro", "/", "--chdir", "/", "--")

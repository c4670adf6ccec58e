"""Starts core processes: the first one before its settings are known, so that it imports while the language server does.

This module imports little, since the language server's own imports take a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

CORE = (sys.executable, "-P", "-m", "inference.core")
"""The command of a core; without arguments it waits for them, see `inference/core/__main__.py`."""


def spawn(command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one; it writes to a new log that only its user can read."""
    with os.fdopen(_new_log(log_file), "wb") as log:
        return _popen(command, subprocess.DEVNULL, log, log_file.parent, environment)


class WaitingCore:
    """A core that waits for its settings on its stdin, or none; it ends with this process, unless it has got them."""

    def __init__(self, process: subprocess.Popen[bytes] | None = None) -> None:
        self._process = process

    @classmethod
    def start(cls) -> WaitingCore:
        """Start one; it ends by itself if a core runs, or another one waits."""
        try:
            return cls(_popen(CORE, subprocess.PIPE, subprocess.DEVNULL, Path(sys.prefix), {}))
        except OSError:  # the core's start will say it
            return cls()

    def spawn(self, command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """As `spawn`; the first core is the one that waits, if there is one."""
        process = self._process
        if process is None or process.stdin is None or tuple(command[: len(CORE)]) != CORE:
            return spawn(command, log_file, environment)
        os.close(_new_log(log_file))
        given = {"arguments": command[len(CORE) :], "environment": dict(environment)}
        try:
            process.stdin.write(json.dumps(given).encode())
            process.stdin.flush()
        except (OSError, ValueError):  # it has ended, or been closed meanwhile
            self.close()
            return spawn(command, log_file, environment)
        self.close()
        return process

    def close(self) -> None:
        """End the process if it still waits."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()


def _new_log(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)


def _popen(
    command: Sequence[str], stdin: int, output: int | IO[bytes], folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A process of its own session, in a folder that is not the user's project, which could then not be removed."""
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=output,
        stderr=output,
        env={**os.environ, **environment},
        cwd=folder,
        start_new_session=True,
        creationflags=flags,
    )

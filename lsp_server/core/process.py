"""Finds the core of this machine, or starts it as a process that outlives this one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import filelock

from lsp_server.core.local_cores import answering_core
from lsp_server.core.os_process import CoreProcess
from protocol.errors import AlreadyServed, BadInput, CoreBlocked, CoreSilent, CoreUnavailable
from protocol.messages import PROTOCOL_VERSION
from protocol.rendezvous import CoreAddress, is_held, read_address
from protocol.settings import CORE_SETTINGS, Settings, chosen_settings, variable_name

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_LOG_LINES = 8
# A core that loads a model may block its event loop for seconds; a stopped process never answers.
_SILENCE_S = 20.0


def core_command(settings: Settings, log_file: Path) -> list[str]:
    """The command line that starts a core with these settings, which gives way to one with others."""
    chosen = json.dumps(chosen_settings(settings, CORE_SETTINGS))
    return [sys.executable, "-P", "-m", "inference.server", str(log_file), chosen]


def core_environment(settings: Settings) -> dict[str, str]:
    """The variables that such a core is started with: secrets, which would show among a command's options."""
    return {variable_name("engine_key"): settings.engine_key} if settings.engine_key else {}


def starting_lock(file: Path) -> filelock.BaseFileLock:
    """The lock of whoever starts a core for this address file; the core itself holds `.lock`."""
    return filelock.FileLock(file.with_suffix(".starting"), mode=0o600)


class LocalCore:
    """Finds the one core of this machine that serves a model, or starts it.

    Language servers that start at the same time agree by a lock file on which of them starts the core; the system
    releases the lock when its holder dies.
    """

    def __init__(
        self, file: Path, command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> None:
        """`file` is the core's address file; `environment` is added to this process's own."""
        self.file = file
        self._lock = starting_lock(file)
        self._command = command
        self._environment = environment or {}
        self._log_file = file.with_suffix(".log")
        self._timeout_s = timeout_s
        self._terminated: set[int] = set()
        self._silent_since: float | None = None

    async def find_or_start(self) -> CoreAddress:
        """The address of a core that answers.

        Raises CoreUnavailable with the core's last log lines if it does not come up, BadInput with its reason if it
        refuses the settings, and CoreBlocked if a running core can be neither used nor replaced.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    address = await self.find()
                    if address is None and not is_held(self.file):
                        with suppress(filelock.Timeout), self._lock.acquire(blocking=False):
                            address = await self.find() or await self._start()
                    if address is not None:
                        return address
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise CoreUnavailable(self._say(f"no core started within {self._timeout_s:.0f} s")) from error

    async def find(self) -> CoreAddress | None:
        """The running core, if it can be used; one that blocks its place is ended if that is safe."""
        address = self._published()
        if address is None:
            return None
        if address.protocol_version != PROTOCOL_VERSION:
            self._end_other_version(address)
            return None
        try:
            found = await answering_core(self.file)
        except CoreSilent as silence:
            self._end_if_hung(address, silence)
            return None
        self._silent_since = None
        return found

    def _published(self) -> CoreAddress | None:
        if not is_held(self.file):
            return None
        try:
            return read_address(self.file)
        except BadInput as error:  # the core that holds the lock is about to write its own
            logger.info("%s", error)
            return None

    def _end_other_version(self, address: CoreAddress) -> None:
        """End a core that another version of midfill has started, unless programs are connected to it."""
        process = CoreProcess.of(address)
        if process is None or address.pid in self._terminated:
            return
        if process.is_used:
            raise CoreBlocked(
                f"the running core (process {address.pid}) has another version of midfill, and other programs use "
                "it: close them, or run `midfill core stop`"
            )
        logger.warning("ending process %d, a core of another version", address.pid)
        process.terminate()
        self._terminated.add(address.pid)

    def _end_if_hung(self, address: CoreAddress, silence: CoreSilent) -> None:
        """Kill a core that does not answer: at once if its process is stopped, else after _SILENCE_S seconds."""
        process = CoreProcess.of(address)
        if process is None:
            return
        if not address.replaceable:
            hint = "It was started by hand: continue it, or run `midfill core stop`"
            raise CoreBlocked(f"{silence}. {hint}") from silence
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        if process.is_stopped or now - self._silent_since > _SILENCE_S:
            logger.warning("%s; replacing it", silence)
            process.kill()
            self._silent_since = None

    async def _start(self) -> CoreAddress | None:
        """Start the core; None if another process started one first."""
        logger.info("starting the core: %s", self._command)
        process = await asyncio.to_thread(_spawn, self._command, self._log_file, self._environment)
        while (address := await self.find()) is None:
            status = process.poll()
            if status == AlreadyServed.exit_status:
                return None
            if status == BadInput.exit_status:
                last = (self._last_lines() or ["it logged nothing"])[-1]
                raise BadInput(f"{last.removeprefix('midfill: ')} (log: {self._log_file})")
            if status is not None:
                raise CoreUnavailable(self._say(f"the core exited with status {status}"))
            await asyncio.sleep(_POLL_S)
        return address

    def _say(self, what: str) -> str:
        return "\n".join([f"{what} (log: {self._log_file})", *self._last_lines()])

    def _last_lines(self) -> list[str]:
        try:
            log = self._log_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in log.splitlines() if line.strip()][-_LOG_LINES:]


def _spawn(command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one; it writes to a new log that only its user can read."""
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
            cwd=log_file.parent,  # not the user's project, which could then not be removed
            start_new_session=True,
            creationflags=flags,
        )

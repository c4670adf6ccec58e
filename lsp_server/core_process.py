"""The core of this machine: found by its address file, or started as a process of its own that outlives us."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import filelock
import psutil

from protocol.errors import BadInput, CoreUnavailable
from protocol.rendezvous import CoreAddress, address_file, read_address
from protocol.settings import CORE_SETTINGS, Settings, option_name

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_PORT_TIMEOUT_S = 2.0
_LOG_LINES = 8


def core_command(settings: Settings, log_file: Path) -> list[str]:
    """The command line that starts the core which these settings ask for."""
    return [
        *(sys.executable, "-m", "midfill", "core", "--log-file", str(log_file)),
        *itertools.chain.from_iterable(_option(name, getattr(settings, name)) for name in CORE_SETTINGS),
    ]


def _option(name: str, value: object) -> Sequence[str]:
    if isinstance(value, bool):
        return [option_name(name if value else f"no_{name}")]
    return option_name(name), str(value)


class LocalCore:
    """Finds or starts the one core of this machine that serves `model`.

    Language servers that start at the same time agree by a lock file on who starts the core; the system
    releases the lock when its holder dies.
    """

    def __init__(self, folder: Path, model: str, command: Sequence[str], log_file: Path, timeout_s: float) -> None:
        self._address_file = address_file(folder, model)
        self._lock = filelock.FileLock(self._address_file.with_suffix(".starting"))  # the core itself holds `.lock`
        self._command = command
        self._log_file = log_file
        self._timeout_s = timeout_s

    async def find_or_start(self) -> CoreAddress:
        """The address of a core that listens.

        Raises CoreUnavailable with its last log lines if it does not come up, and BadInput with its reason where it
        refuses what it was asked for, and would again.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while (address := await self._find()) is None:
                    if self._try_lock():
                        try:
                            return await self._find() or await self._start()
                        finally:
                            self._lock.release()
                    await asyncio.sleep(_POLL_S)
                return address
        except TimeoutError as error:
            raise CoreUnavailable(self._say(f"no core came up within {self._timeout_s:.0f} s")) from error

    async def _find(self) -> CoreAddress | None:
        """The core that the address file names, if it lives and listens."""
        try:
            address = read_address(self._address_file)
        except BadInput as error:
            logger.warning("%s", error)
            return None
        if address is None or not _is_alive(address.pid):
            return None
        url = urlsplit(address.url)
        return address if await _listens(url.hostname or "", url.port or 0) else None

    def _try_lock(self) -> bool:
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout:
            return False
        return True

    async def _start(self) -> CoreAddress:
        logger.info("starting the core: %s", self._command)
        process = await asyncio.to_thread(_spawn, self._command, self._log_file)
        while (address := await self._find()) is None:
            if status := process.poll():  # 0 says that another one serves this model, or is about to
                if status == BadInput.exit_status:
                    raise BadInput(self._reason())
                raise CoreUnavailable(self._say(f"the core ended with status {status}"))
            await asyncio.sleep(_POLL_S)
        return address

    def _say(self, what: str) -> str:
        return "\n".join([f"{what} (log: {self._log_file})", *self._last_lines()])

    def _reason(self) -> str:
        """Why the core refused to start: what a command says last."""
        *_, last = ["it said nothing", *self._last_lines()]
        return f"{last.removeprefix('midfill: ')} (log: {self._log_file})"

    def _last_lines(self) -> list[str]:
        try:
            log = self._log_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in log.splitlines() if line.strip()][-_LOG_LINES:]


def _spawn(command: Sequence[str], log_file: Path) -> subprocess.Popen[bytes]:
    """Start a process that lives on when we end; it writes to a fresh log that only its user can read."""
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
            cwd=log_file.parent,  # not the user's project, whose modules `python -m` would find first
            start_new_session=True,
            creationflags=flags,
        )


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def _listens(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PORT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True

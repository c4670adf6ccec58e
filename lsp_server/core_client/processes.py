"""Cores of this machine: finds them by their address files, checks and ends them, and starts one that is missing.

A core counts as running if it holds its lock, and as the user's own if it proves that it knows the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import filelock
import psutil

from lsp_server.core_client.client import CoreClient, Endpoint, check_proof
from lsp_server.core_client.waiting import CORE, spawn
from protocol.errors import AlreadyServed, BadInput, CoreBlocked, CoreSilent, CoreUnavailable, Unauthorized
from protocol.messages import PROTOCOL_VERSION, CoreStatus
from protocol.rendezvous import CoreAddress, StoppedCore, end_stop, is_held, read_address, read_or_make_token, write_stop
from protocol.settings import CORE_SETTINGS, Settings, chosen_settings, variable_name
from protocol.wire import StopHow


class CoreProcess:
    """The process of a core that holds its lock; signals to a process that has ended do nothing."""

    def __init__(self, process: psutil.Process, address: CoreAddress) -> None:
        self._process = process
        self._address = address

    @classmethod
    def of(cls, address: CoreAddress) -> CoreProcess | None:
        """The process, if it is certainly the core's: this user's, and listening at the published port; else None."""
        try:
            process = psutil.Process(address.pid)
            ours = process.username() == psutil.Process().username()
            listens = ours and psutil.CONN_LISTEN in _connections(process, address)
        except psutil.Error:
            return None
        return cls(process, address) if listens else None

    @property
    def is_used(self) -> bool:
        """Whether programs are connected to the core."""
        try:
            return psutil.CONN_ESTABLISHED in _connections(self._process, self._address)
        except psutil.NoSuchProcess:
            return False

    @property
    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has stopped the process: it does not answer until it is continued."""
        try:
            return bool(self._process.status() == psutil.STATUS_STOPPED)
        except psutil.NoSuchProcess:
            return False

    def terminate(self) -> None:
        """Tell the core to exit; on systems with signals it saves its KV caches first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.kill()


def resident_bytes(pid: int) -> int | None:
    """The resident memory of a process in bytes; None if unknown."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _connections(process: psutil.Process, address: CoreAddress) -> set[str]:
    """The states of the TCP connections at the core's port."""
    port = urlsplit(address.url).port
    return {one.status for one in process.net_connections("tcp") if one.laddr and one.laddr.port == port}


logger = logging.getLogger(__name__)

Spawn = Callable[[Sequence[str], Path, Mapping[str, str]], "subprocess.Popen[bytes]"]
"""Starts a command with a log file and variables besides this process's."""

_ANSWER_S = 5.0
_EXIT_S = 20.0  # a core that exits saves its KV caches
_POLL_S = 0.05


def published_core(file: Path) -> CoreAddress | None:
    """The core that this address file names, if it runs; BadInput if the file or the lock cannot be used."""
    return read_address(file) if is_held(file) else None


def endpoint_of(address: CoreAddress, file: Path, differs: str = "") -> Endpoint:
    """The endpoint of a core of this machine, from its address and address file; BadInput for a bad token."""
    return Endpoint(address.url, read_or_make_token(file.parent), own=True, differs=differs)


async def answering_core(file: Path) -> CoreAddress | None:
    """The core that this address file names, if it runs, speaks our protocol and knows the token.

    None if no core runs, or if it has just begun to listen or to exit. Raises CoreBlocked for another protocol
    version, CoreSilent if the core does not answer, Unauthorized if it does not know the token.
    """
    address = published_core(file)
    if address is None:
        return None
    if address.protocol_version != PROTOCOL_VERSION:
        raise CoreBlocked(
            f"the running core (process {address.pid}) has another version of midfill (protocol "
            f"{address.protocol_version}, this one: {PROTOCOL_VERSION}): stop it with `midfill core stop`"
        )
    try:
        await check_proof(address.url, read_or_make_token(file.parent))
    except Unauthorized as error:
        if CoreProcess.of(address) is None:
            return None  # a former core's address: the next core has not published its own yet
        raise Unauthorized(
            f"the core of process {address.pid} does not know the token in {file.with_name('token')}: stop it "
            "with `midfill core stop`"
        ) from error
    except CoreSilent as error:
        raise CoreSilent(f"the core (process {address.pid}) does not answer") from error
    except CoreUnavailable:
        return None
    return address


async def ask_status(endpoint: Endpoint) -> CoreStatus:
    """The core's status; errors as from `CoreClient.open`, and CoreSilent if the core sends none."""
    answer: asyncio.Future[CoreStatus] = asyncio.get_running_loop().create_future()

    def hear(status: CoreStatus) -> None:
        if not answer.done():
            answer.set_result(status)

    async with closing(await CoreClient.open(endpoint, hear)) as client:
        await _first(answer, client)
        return answer.result()


async def stop_core(file: Path, by: str) -> bool:
    """End the core that this address file names, as `end_core`, and keep the clients of now from starting another one.

    `by` names the program that stops it, for their users. Where nothing can be written, as on a full disk, the core
    ends all the same, and BadInput says that clients start another one.
    """
    unwritten: BadInput | None = None
    try:  # first: other clients look at it when the core ends
        write_stop(file, StoppedCore(by, published_core(file), time.time()))
    except BadInput as error:
        unwritten = error
    try:
        has_ended = await end_core(file, "stop")
    except BaseException:
        end_stop(file)
        raise
    if unwritten is not None:
        raise BadInput(f"the core has ended, and the editors that are open start another: {unwritten}") from unwritten
    return has_ended


async def end_core(file: Path, how: StopHow) -> bool:
    """End the core that this address file names, and return when it has exited; False if none runs.

    A core that does not answer is ended by signals. CoreBlocked, with the reason, if it does not exit.
    """
    address = published_core(file)
    if address is None:
        return False
    try:
        await _ask_to_stop(address, file, how)
    except (CoreSilent, Unauthorized) as error:
        logger.warning("the core (process %d) cannot be asked to exit: %s", address.pid, error)
        if how != "stop" and not address.replaceable:
            raise CoreBlocked(f"process {address.pid} was started by hand: stop it with `midfill core stop`") from error
        _sure_process(address).terminate()
    except CoreBlocked:
        raise
    except CoreUnavailable:
        pass  # it has begun to exit
    if not await _has_gone(file):
        _sure_process(address).kill()
        if not await _has_gone(file):
            raise CoreBlocked(f"process {address.pid} does not exit")
    return True


def _sure_process(address: CoreAddress) -> CoreProcess:
    process = CoreProcess.of(address)
    if process is None:
        raise CoreBlocked(f"process {address.pid} may not be the core at {address.url}, so midfill does not end it")
    return process


async def _ask_to_stop(address: CoreAddress, file: Path, how: StopHow) -> None:
    if address.protocol_version != PROTOCOL_VERSION:
        raise CoreSilent("it has another version")
    kept: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    endpoint = endpoint_of(address, file)
    async with closing(await CoreClient.open(endpoint, lambda _: None, kept.set_result)) as client:
        client.stop(how)
        await _first(kept, client, ends=True)
        if kept.done():
            raise CoreBlocked(f"the core keeps running: {kept.result()}")


async def _first(answer: asyncio.Future[Any], client: CoreClient, *, ends: bool = False) -> None:
    """Wait for the result of `answer`; with `ends`, the end of the connection suffices."""
    closed = asyncio.ensure_future(client.wait_closed())
    done, _ = await asyncio.wait({answer, closed}, timeout=_ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
    closed.cancel()
    if answer.done():
        return
    if not done:
        raise CoreSilent("the core accepts connections but sends nothing")
    closed.result()
    if not ends:
        raise CoreUnavailable("the core has exited")


@contextlib.asynccontextmanager
async def closing(client: CoreClient) -> AsyncIterator[CoreClient]:
    """The client, until it is closed with the context."""
    try:
        yield client
    finally:
        await client.close()


async def _has_gone(file: Path) -> bool:
    deadline = time.monotonic() + _EXIT_S
    while is_held(file):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


_LOG_LINES = 8
_LEAST_LOG_BYTES = 4096  # one block of a file system
# A core that loads a model may block its event loop for seconds; a stopped process never answers.
_SILENCE_S = 20.0


def core_command(settings: Settings, log_file: Path) -> list[str]:
    """The command line that starts a core with these settings, which gives way to one with others."""
    chosen = json.dumps(chosen_settings(settings, CORE_SETTINGS))
    return [*CORE, str(log_file), chosen]


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
        self,
        file: Path,
        command: Sequence[str],
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        spawn: Spawn = spawn,
    ) -> None:
        """`file` is the core's address file; `environment` is added to this process's own."""
        self.file = file
        self._spawn = spawn
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
            said = f"no core started within {self._timeout_s:.0f} s: {self._last_words()} (log: {self._log_file})"
            raise CoreUnavailable(said) from error

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
        process = await asyncio.to_thread(self._spawn, self._command, self._log_file, self._environment)
        while (address := await self.find()) is None:
            status = process.poll()
            if status == AlreadyServed.exit_status:
                return None
            if status == BadInput.exit_status:
                raise BadInput(f"{self._last_words()} (log: {self._log_file})")
            if status is not None:
                raise CoreUnavailable(f"the core exited with status {status}: {self._last_words()} (log: {self._log_file})")
            await asyncio.sleep(_POLL_S)
        return address

    def _last_words(self) -> str:
        """The last line of the log that is midfill's own, since libraries may log behind it; else the last one."""
        with suppress(FileNotFoundError):
            log = self._log_file.read_text(encoding="utf-8", errors="replace")
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            own = [line for line in lines[-_LOG_LINES:] if line.startswith("midfill: ")]
            if lines:
                return (own or lines)[-1].removeprefix("midfill: ")
        folder = self._log_file.parent
        is_full = shutil.disk_usage(folder).free < _LEAST_LOG_BYTES
        return f"it could not write its log, since the disk of {folder} is full" if is_full else "it logged nothing"


@contextmanager
def place_of(file: Path, report: Callable[[str], None], check: Callable[[], None]) -> Iterator[None]:
    """Within the block, clients start no core for this address file; one that they had started has ended.

    `report` gets a line about that, after `check` has raised nothing: else the user would be left without a core. One
    that the user has started stays. CoreBlocked if the running one does not exit.
    """
    with starting_lock(file):
        running = published_core(file)
        if running is not None and running.replaceable:
            check()
            report(f"taking the place of the core that an editor has started (process {running.pid})")
            asyncio.run(end_core(file, "restart"))
        yield

"""The keeper of workspace folders' indexes: starts their process, tells it which files changed and when to scan."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from lsp_server.documents.positions import split_uri

When = Literal["no", "due", "opened", "now"]
"""When the whole folder is scanned: not, if its cost makes that due, at the start of a window, or in any case."""


class IndexRequest(msgspec.Struct, frozen=True):
    """A folder, its files that have changed (their paths in it, with `/`), and whether to scan all of it."""

    folder: str
    files: tuple[str, ...] = ()
    scan: When = "no"


class IndexAnswer(msgspec.Struct, frozen=True):
    """The result of a request: counts of files, CPU seconds, and the seconds until a scan is due.

    `is_busy` says that another process writes the index now, and `is_unfit` that the folder is not indexed.
    """

    again_s: float
    is_busy: bool = False
    is_unfit: bool = False
    looked_at: int = 0
    checked: int = 0
    read: int = 0
    removed: int = 0
    cpu_s: float = 0.0


logger = logging.getLogger(__name__)

# -P: `python -m` would find the modules of the folder that the editor was started in first.
_COMMAND = (sys.executable, "-P", "-m", "lsp_server.context.index")


class IndexProcess:
    """A process that brings indexes up to date; use it as a context manager, so that it ends.

    If a caller is cancelled, the process ends at once; what it has committed stays.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> IndexProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_end, process)

    async def ask(self, request: IndexRequest) -> IndexAnswer | None:
        """Pass a request on; None if the process fails, which it reports on stderr. The index then stays as it is."""
        try:
            if self._process is None:
                self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return await asyncio.to_thread(_exchange, self._process, request)
        except asyncio.CancelledError:
            if self._process is not None:
                self._process.kill()  # the thread, which goes on, waits for its end
            raise
        except (OSError, ValueError) as error:
            logger.warning("the index of %s is not up to date: %s", request.folder, error)
            await self.__aexit__()
            return None


def _exchange(process: subprocess.Popen[bytes], request: IndexRequest) -> IndexAnswer:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(request) + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise OSError(f"its process ended with status {process.wait()}")
    return msgspec.json.decode(line, type=IndexAnswer)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError), process:  # closes its input, by which it ends, and waits
        pass


async def scan_apart(folder: Path) -> None:
    """Bring a folder's index up to date in a process of its own."""
    async with IndexProcess() as process:
        await process.ask(IndexRequest(str(folder), scan="now"))


def runs_on_battery() -> bool:
    """Whether this machine runs on its battery; False if it has none, or does not say."""
    try:
        battery = psutil.sensors_battery()
    except Exception as error:  # noqa: BLE001 -- psutil passes on what drivers and virtual machines fail with
        logger.debug("the power supply is unknown: %r", error)
        return False
    return battery is not None and battery.power_plugged is False


SETTLE_S = 2.0  # after a change, for more of them
APART_S = 10.0  # until a process that writes the same index is asked again
IDLE_S = 600.0  # the process, whose start costs more than a file that changed, is kept for so long
_FAILED_APART_S = 600.0


class IndexKeeper:
    """Has files read soon after they changed, and folders scanned when that is due, by a process of low priority."""

    def __init__(self) -> None:
        self._folders: Sequence[Path] = ()
        self._enabled = False
        self._next_scan: dict[Path, float] = {}  # in monotonic time; of a folder that was not asked about, none
        self._unfit: set[Path] = set()  # folders that are not indexed
        self._changed: dict[Path, set[str]] = {}  # files of each folder
        self._has_work = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def use(self, folders: Sequence[Path], *, enabled: bool) -> None:
        """Keep the indexes of these folders from now on, if that is enabled."""
        if (self._folders, self._enabled) != (folders, enabled):
            self._folders, self._enabled = folders, enabled
            self._next_scan = {each: due for each, due in self._next_scan.items() if each in folders}
            self._changed.clear()
            self.used()

    def changed(self, uris: Iterable[str]) -> None:
        """Have these files looked at soon, since they have changed."""
        for path in map(Path, (split_uri(uri).path for uri in uris)):
            for folder in self._folders:
                if path.is_relative_to(folder) and folder not in self._unfit:
                    self._changed.setdefault(folder, set()).add(path.relative_to(folder).as_posix())
        if self._changed:
            self._start()

    def used(self) -> None:
        """Scan the folders soon for which that is due, since their definitions may be needed."""
        if any(self._is_due(folder) for folder in self._folders):
            self._start()

    async def close(self) -> None:
        """End the process; what it has committed stays."""
        self._enabled = False
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    def _is_due(self, folder: Path) -> bool:
        return self._next_scan.get(folder, 0.0) <= time.monotonic()

    def _start(self) -> None:
        if self._enabled:
            self._has_work.set()
            if self._work is None or self._work.done():
                self._work = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Work until nothing was to do for a while."""
        while self._has_work.is_set():  # also of what came while a process ended
            async with IndexProcess() as process:
                while self._has_work.is_set() or await self._is_woken():
                    self._has_work.clear()
                    await asyncio.sleep(SETTLE_S)
                    for folder in self._folders:
                        await self._bring_up_to_date(folder, process)

    async def _is_woken(self) -> bool:
        try:
            return await asyncio.wait_for(self._has_work.wait(), IDLE_S)
        except TimeoutError:
            return False

    async def _bring_up_to_date(self, folder: Path, process: IndexProcess) -> None:
        files, is_due = self._changed.pop(folder, set()), self._is_due(folder)
        if not self._enabled or not (files or is_due):
            return
        scan: When = "no" if not is_due else "due" if folder in self._next_scan else "opened"
        answer = await process.ask(IndexRequest(str(folder), tuple(sorted(files)), scan))
        again_s = _FAILED_APART_S if answer is None else answer.again_s
        if answer is not None and answer.is_busy:
            self._changed.setdefault(folder, set()).update(files)
            asyncio.get_running_loop().call_later(APART_S, self._start)
        if answer is not None and answer.is_unfit:
            self._unfit.add(folder)
        else:
            self._unfit.discard(folder)
        if is_due or answer is None:
            self._next_scan[folder] = time.monotonic() + again_s

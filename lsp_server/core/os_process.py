"""A core's process in the operating system: identifies it, tells its connections and state, and ends it by signals."""

from __future__ import annotations

import contextlib
from urllib.parse import urlsplit

import psutil

from protocol.rendezvous import CoreAddress


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

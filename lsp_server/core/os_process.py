"""A core's process as the operating system sees it: surely the core's, used by others, stopped; ended by signals.

Only for cores that cannot be asked: importing psutil takes time that the start of a language server does not have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

import psutil

from protocol.rendezvous import CoreAddress


class CoreProcess:
    """The process of a core that holds its lock. One that has ended meanwhile is left alone."""

    def __init__(self, process: psutil.Process, address: CoreAddress) -> None:
        self._process = process
        self._address = address

    @classmethod
    def of(cls, address: CoreAddress) -> CoreProcess | None:
        """None if the process is not surely the core's: this user's, and listening at the published port."""
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
        """Whether a signal has stopped the process, as SIGSTOP does: it answers nothing until it is continued."""
        try:
            return bool(self._process.status() == psutil.STATUS_STOPPED)
        except psutil.NoSuchProcess:
            return False

    def terminate(self) -> None:
        """Let the core exit; where there are signals it saves its KV caches first."""
        self._signal(self._process.terminate)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(self._process.kill)

    def _signal(self, send: Callable[[], None]) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            send()


def resident_bytes(pid: int) -> int | None:
    """The memory of a process; None where that cannot be told."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _connections(process: psutil.Process, address: CoreAddress) -> set[str]:
    """The states of the TCP connections at the core's port."""
    port = urlsplit(address.url).port
    return {one.status for one in process.net_connections("tcp") if one.laddr and one.laddr.port == port}

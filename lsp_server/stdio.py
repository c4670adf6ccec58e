"""Stdin and stdout as streams of bytes; stdin is read by the event loop where that can poll it, else by a thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import sys
import threading

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 16


class StdoutWriter:
    """Writes what it is given to stdout, at once. Where nobody reads any more it is dropped: stdin will end, too."""

    def __init__(self) -> None:
        self._stdout = os.fdopen(os.dup(1), "wb", buffering=0)
        if sys.platform != "win32":
            os.set_blocking(1, True)  # whatever it was handed over as
        self._is_read = True

    def write(self, data: bytes) -> None:
        """Return when all of it is written."""
        rest = memoryview(data)
        while rest and self._is_read:
            try:
                rest = rest[self._stdout.write(rest) :]
            except OSError as error:
                logger.info("stdout is not read any more: %s", error)
                self._is_read = False

    def close(self) -> None:
        """Write no more."""
        self._stdout.close()


async def connect_stdin(protocol: asyncio.Protocol) -> None:
    """Hand what comes on this process's stdin to `protocol`, which can close the transport that it is given."""
    if _can_be_polled():
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    else:
        _StdinThread(protocol)


class _StdinThread(asyncio.ReadTransport):
    """Reads in a thread what the event loop cannot poll. The thread ends with the process: nothing ends a read."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._may_read = threading.Event()  # cleared while a chunk is handed over, and while reading is paused
        self._may_read.set()
        self._paused = False
        self._closed = False
        protocol.connection_made(self)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def pause_reading(self) -> None:
        self._paused = True
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._paused = False
        self._may_read.set()

    def close(self) -> None:
        self._closed = True

    def _read(self) -> None:
        data = b"some"
        while data:
            self._may_read.wait()
            try:
                data = os.read(0, _CHUNK_BYTES)
            except OSError as error:
                logger.info("stdin cannot be read any more: %s", error)
                data = b""
            self._may_read.clear()
            with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._hand_over, data)

    def _hand_over(self, data: bytes) -> None:
        if self._closed:
            return
        if data:
            self._protocol.data_received(data)
        else:
            self._protocol.eof_received()
        if not self._paused:
            self._may_read.set()


def _can_be_polled() -> bool:
    """Whether stdin is a pipe or a socket, where those can be polled, and of its own.

    Polling makes it non-blocking, and stdout with it if both are one socket: long messages could not be written.
    """
    stdin, stdout = os.fstat(0), os.fstat(1)
    shared = (stdin.st_dev, stdin.st_ino) == (stdout.st_dev, stdout.st_ino)
    return sys.platform != "win32" and (stat.S_ISFIFO(stdin.st_mode) or stat.S_ISSOCK(stdin.st_mode)) and not shared

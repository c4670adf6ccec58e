"""LSP's messages from stdin: read by the event loop where that can poll it, by a thread elsewhere."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pygls.io_ import StdinAsyncReader

if TYPE_CHECKING:
    from pygls.io_ import AsyncReader


@asynccontextmanager
async def stdin_reader() -> AsyncIterator[AsyncReader]:
    """A reader of this process's stdin.

    A thread hands over each line and each body of a message to the event loop, which costs a keystroke up to half a
    millisecond: so it is used only where the event loop cannot poll stdin.
    """
    if not _can_be_polled():
        with ThreadPoolExecutor(1, "stdin") as executor:
            yield StdinAsyncReader(sys.stdin.buffer, executor)
        return
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    try:
        yield reader
    finally:
        transport.close()


def _can_be_polled() -> bool:
    """Whether stdin is a pipe or a socket, where those can be polled, and of its own.

    Polling makes it non-blocking, and stdout with it if both are one socket: long messages could not be written.
    """
    stdin, stdout = os.fstat(0), os.fstat(1)
    shared = (stdin.st_dev, stdin.st_ino) == (stdout.st_dev, stdout.st_ino)
    return sys.platform != "win32" and (stat.S_ISFIFO(stdin.st_mode) or stat.S_ISSOCK(stdin.st_mode)) and not shared

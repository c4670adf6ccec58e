"""Starts the index's process when it is first asked, passes requests to it, and ends it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from lsp_server.context.index.messages import Answer, Request

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

    async def ask(self, request: Request) -> Answer | None:
        """Pass a request on; None if the process fails, which it reports on stderr. The index then stays as it is."""
        try:
            if self._process is None:
                self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return await asyncio.to_thread(_exchange, self._process, request)
        except asyncio.CancelledError:
            if self._process is not None:
                self._process.kill()  # the thread, which goes on, waits for its end
            raise
        except (OSError, ValueError, TypeError) as error:
            logger.warning("the index of %s is not up to date: %s", request.folder, error)
            await self.__aexit__()
            return None


def _exchange(process: subprocess.Popen[bytes], request: Request) -> Answer:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request.encode())
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise OSError(f"its process ended with status {process.wait()}")
    return Answer.decode(line)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError), process:  # closes its input, by which it ends, and waits
        pass


async def scan_apart(folder: Path) -> None:
    """Bring a folder's index up to date in a process of its own."""
    async with IndexProcess() as process:
        await process.ask(Request(str(folder), scan="now"))

"""Runs the language server of one editor, over stdio."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys

import psutil
from pygls.io_ import StdinAsyncReader, StdoutWriter

from lsp_server.editor_connection import Stream, serve
from lsp_server.features import cores, lifecycle, notebooks, reasons, suggestions, text_documents
from lsp_server.server import MidfillServer
from protocol import garbage
from protocol.settings import Settings

logger = logging.getLogger(__name__)

_PARENT_SECONDS = 5.0
# By then `initialize` is answered. Collecting garbage among all loaded objects would delay a keystroke by 30 ms.
_SETTLED_SECONDS = 1.0


def make_server(settings: Settings) -> MidfillServer:
    """A language server for one client, with all of its handlers."""
    server = MidfillServer(settings)
    for handlers in (lifecycle, text_documents, notebooks, suggestions, reasons, cores):
        handlers.register(server)
    return server


def run_stdio(settings: Settings) -> None:
    """Serve the client on stdin and stdout until it disconnects; the process ends with LSP's exit status.

    Stdout is for LSP alone: other output goes to stderr, as the log does.
    """
    _log_to_stderr(settings)
    stdout = _Stdout(os.fdopen(os.dup(1), "wb"))
    sys.stdout = sys.stderr
    if sys.platform != "win32":
        os.set_blocking(1, True)  # the client may have made it non-blocking
    asyncio.run(_serve_stdio(settings, stdout))
    sys.exit(1)  # the client disconnected without `exit`


class _Stdout(StdoutWriter):
    """Drops messages to a client that has disconnected; the end of stdin, which follows, ends the server."""

    def write(self, data: bytes) -> None:
        try:
            super().write(data)
        except OSError as error:
            logger.info("the client no longer reads stdout: %s", error)

    def close(self) -> None:
        """Do nothing: the process closes stdout at its end, after the last status of the core's connection."""


async def _serve_stdio(settings: Settings, stdout: _Stdout) -> None:
    server = make_server(settings)
    server.protocol.set_writer(stdout)
    asyncio.get_running_loop().call_later(_SETTLED_SECONDS, garbage.keep_what_is_loaded)
    stdin = await _open_stdin()
    parent = asyncio.create_task(_end_with_parent(server))
    try:
        await serve(server, stdin)
    finally:
        parent.cancel()


async def _open_stdin() -> Stream:
    """Stdin, read by the event loop if it can poll it, else by a thread.

    Polling makes stdin non-blocking, and stdout with it if both are one socket: then long messages cannot be written.
    """
    stdin, stdout = os.fstat(0), os.fstat(1)
    shared = (stdin.st_dev, stdin.st_ino) == (stdout.st_dev, stdout.st_ino)
    if sys.platform == "win32" or shared or not (stat.S_ISFIFO(stdin.st_mode) or stat.S_ISSOCK(stdin.st_mode)):
        return StdinAsyncReader(sys.stdin.buffer)
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin.buffer)
    return stream


async def _end_with_parent(server: MidfillServer) -> None:
    """End the process when the one that `initialize` names has ended, as LSP requires: stdin may stay open."""
    while server.process_id is None or psutil.pid_exists(server.process_id):
        await asyncio.sleep(_PARENT_SECONDS)
    logger.warning("the client's process %d has exited", server.process_id)
    await server.leave()
    os._exit(1)  # a thread that reads stdin would block an orderly exit


def _log_to_stderr(settings: Settings) -> None:
    logging.basicConfig(stream=sys.stderr, level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("lsp_server").setLevel(settings.log_level.upper())
    logging.getLogger("pygls").setLevel("CRITICAL")  # it also reports these errors to the server

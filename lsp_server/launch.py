"""Runs language servers: one over stdio, or one per connection over TCP."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import sys
from ipaddress import ip_address

import psutil
from pygls.io_ import StdinAsyncReader, StdoutWriter

from lsp_server.editor_connection import Stream, serve
from lsp_server.features import cores, lifecycle, notebooks, reasons, suggestions, text_documents
from lsp_server.server import MidfillServer
from protocol import garbage
from protocol.errors import BadInput, PortInUse
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


def run_tcp(settings: Settings, host: str, port: int) -> None:
    """Serve every client that connects, each with documents and settings of its own, until interrupted.

    BadInput for an address that other machines can reach, since clients are not authenticated. PortInUse names an
    address that is taken.
    """
    if not _is_loopback(host):
        raise BadInput(
            f"--tcp {host}:{port} is not a loopback address, and the language server does not authenticate its"
            f" clients: listen on 127.0.0.1 and connect through a tunnel (ssh -L {port}:127.0.0.1:{port} "
            "THIS-MACHINE)"
        )
    _log_to_stderr(settings)
    try:
        asyncio.run(_serve_tcp(settings, host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{host}:{port} is in use: choose another port, or stop the program that listens there"
            ) from error
        raise
    except KeyboardInterrupt:
        logger.info("interrupted")


async def listen(settings: Settings, host: str, port: int) -> asyncio.Server:
    """Accept clients from now on, each with a server of its own; OSError if the address cannot be bound."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = make_server(settings)
        server.protocol.set_writer(writer)
        try:
            await serve(server, reader)
        except SystemExit:
            logger.info("the client disconnected")
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port)


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


async def _serve_tcp(settings: Settings, host: str, port: int) -> None:
    async with await listen(settings, host, port) as listener:
        garbage.keep_what_is_loaded()
        addresses = ", ".join("{}:{}".format(*socket.getsockname()) for socket in listener.sockets)
        print(f"midfill: the language server listens on {addresses}", file=sys.stderr)  # noqa: T201  # for its user
        await listener.serve_forever()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False  # a name may resolve to any address


def _log_to_stderr(settings: Settings) -> None:
    logging.basicConfig(stream=sys.stderr, level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("lsp_server").setLevel(settings.log_level.upper())
    logging.getLogger("pygls").setLevel("CRITICAL")  # it also reports these errors to the server

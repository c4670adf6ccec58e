"""Runs language servers: one over stdio, or one per connection over TCP."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import sys
from typing import TYPE_CHECKING

from pygls.exceptions import JsonRpcException
from pygls.io_ import StdoutWriter

from lsp_server.framing import read_body
from lsp_server.server import MidfillServer
from lsp_server.stdio import stdin_reader
from protocol.errors import PortInUse
from protocol.settings import Settings

if TYPE_CHECKING:
    from pygls.io_ import AsyncReader

logger = logging.getLogger(__name__)
_pygls_logger = logging.getLogger("pygls")


def run_stdio(settings: Settings) -> None:
    """Serve the client on stdin and stdout until it leaves; the process ends with LSP's exit status.

    Stdout belongs to LSP: what anything else prints goes to stderr, where the log goes too.
    """
    _log_to_stderr(settings)
    writer = StdoutWriter(sys.stdout.buffer)
    sys.stdout = sys.stderr
    sys.exit(asyncio.run(_serve_stdio(settings, writer)))


def run_tcp(settings: Settings, host: str, port: int) -> None:
    """Serve every client that connects, each with documents and settings of its own, until interrupted.

    PortInUse names an address that is taken.
    """
    _log_to_stderr(settings)
    try:
        asyncio.run(_serve_tcp(settings, host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"{host}:{port} is in use: choose another port, or end what listens there") from error
        raise
    except KeyboardInterrupt:
        logger.info("interrupted")


async def _serve_stdio(settings: Settings, writer: StdoutWriter) -> int:
    server = MidfillServer(settings)
    server.protocol.set_writer(writer)
    gc.freeze()  # what is loaded stays: to go through all of it again would hold up a keystroke for 30 ms
    async with stdin_reader() as reader:
        try:
            return await _serve(server, reader)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            logger.info("the client went away: %s", error)
            return server.protocol.exit_code


async def listen(settings: Settings, host: str, port: int) -> asyncio.Server:
    """Accept clients from now on, each with a server of its own; OSError if the address cannot be had."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = MidfillServer(settings)
        server.protocol.set_writer(writer)
        try:
            await _serve(server, reader)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            logger.info("a client went away: %s", error)
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port)


async def _serve_tcp(settings: Settings, host: str, port: int) -> None:
    async with await listen(settings, host, port) as listener:
        addresses = ", ".join("{}:{}".format(*socket.getsockname()) for socket in listener.sockets)
        print(f"midfill: the language server listens on {addresses}", file=sys.stderr)  # noqa: T201  # for its user
        await listener.serve_forever()


async def _serve(server: MidfillServer, reader: AsyncReader) -> int:
    """Handle messages until the client leaves; LSP's exit status.

    The handler of each begins before the next message is handled: a request for a suggestion then sees the document
    as it was when the request was sent.
    """
    protocol = server.protocol
    try:
        while not protocol.stopped:
            try:
                body = await read_body(reader)
                if body is None:
                    break
                protocol.receive(body)
            except (ConnectionError, asyncio.IncompleteReadError):
                raise  # the client is gone
            except Exception as error:  # noqa: BLE001  # it is logged, and one message ends no session
                server.report_server_error(error, JsonRpcException)
            await asyncio.sleep(0)
    finally:
        await server.link.stop()
    return protocol.exit_code


def _log_to_stderr(settings: Settings) -> None:
    logging.basicConfig(stream=sys.stderr, level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("lsp_server").setLevel(settings.log_level.upper())
    _pygls_logger.setLevel("CRITICAL")  # what it cannot handle it also reports to the server, which logs it once

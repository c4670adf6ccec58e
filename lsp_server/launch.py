"""Runs language servers: one over stdio, or one per connection over TCP."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys

from lsp_server.editor_stream import EditorStream
from lsp_server.server import MidfillServer
from lsp_server.stdio import StdoutWriter, connect_stdin
from protocol import garbage
from protocol.errors import PortInUse
from protocol.settings import Settings

logger = logging.getLogger(__name__)
_pygls_logger = logging.getLogger("pygls")


def run_stdio(settings: Settings) -> None:
    """Serve the client on stdin and stdout until it leaves; the process ends with LSP's exit status.

    Stdout belongs to LSP: what anything else prints goes to stderr, where the log goes too.
    """
    _log_to_stderr(settings)
    writer = StdoutWriter()
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
    garbage.keep_what_is_loaded()  # to go through all of it again would hold up a keystroke for 30 ms
    stream = EditorStream(server)
    await connect_stdin(stream)
    await _serve(stream)
    return server.protocol.exit_code


async def listen(settings: Settings, host: str, port: int) -> asyncio.Server:
    """Accept clients from now on, each with a server of its own; OSError if the address cannot be had."""
    serving: set[asyncio.Task[None]] = set()

    def connected() -> _Connection:
        connection = _Connection(MidfillServer(settings))
        task = asyncio.create_task(_serve(connection))
        serving.add(task)
        task.add_done_callback(serving.remove)
        return connection

    return await asyncio.get_running_loop().create_server(connected, host, port)


class _Connection(EditorStream):
    """Answers go where the messages came from."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self.server.protocol.set_writer(transport)


async def _serve_tcp(settings: Settings, host: str, port: int) -> None:
    async with await listen(settings, host, port) as listener:
        garbage.keep_what_is_loaded()
        addresses = ", ".join("{}:{}".format(*socket.getsockname()) for socket in listener.sockets)
        print(f"midfill: the language server listens on {addresses}", file=sys.stderr)  # noqa: T201  # for its user
        await listener.serve_forever()


async def _serve(stream: EditorStream) -> None:
    """Let the server answer until its client leaves."""
    try:
        await stream.ended
        if not stream.server.protocol.stopped:
            logger.info("the client went away")
    finally:
        try:
            await stream.server.leave()
        finally:
            stream.close()


def _log_to_stderr(settings: Settings) -> None:
    logging.basicConfig(stream=sys.stderr, level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("lsp_server").setLevel(settings.log_level.upper())
    _pygls_logger.setLevel("CRITICAL")  # what it cannot handle it also reports to the server, which logs it once

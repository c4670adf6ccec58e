"""The language server's launch: handles an editor's messages, over stdio, and answers unreadable ones with an error."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest, JsonRpcParseError
from pygls.io_ import StdinAsyncReader, StdoutWriter

from lsp_server.core_client.waiting import WaitingCore
from lsp_server.editor_protocol import shorten, why_unreadable
from lsp_server.features import commands, lifecycle, next_edits, suggestions, text_documents
from lsp_server.server import MidfillServer
from protocol import garbage
from protocol.errors import BadInput
from protocol.settings import Settings

logger = logging.getLogger(__name__)

_CONTENT_LENGTH = re.compile(rb"content-length:[ \t]*([0-9]{1,9})\s*", re.IGNORECASE)
Stream = asyncio.StreamReader | StdinAsyncReader

WORKERS = 4
"""Most threads for calls that block: stdin where it cannot be polled, the index's process, ignore files, the core's start.

Each starts when it is first needed, maybe after hours; by asyncio's own limit, a large machine would start dozens.
"""


async def serve(server: MidfillServer, read: Callable[[], Awaitable[bytes | None]]) -> None:
    """Handle messages until `read` brings None; at `exit`, pygls raises SystemExit with LSP's exit status."""
    try:
        while (body := await read()) is not None:
            receive(server, body)
            await asyncio.sleep(0)  # the message's handler begins before the next one is read
        logger.info("the client disconnected")
    except BadInput as error:
        logger.error("the connection is closed: %s", error)
    except OSError as error:
        logger.info("the connection broke: %s", error)
    finally:
        await asyncio.shield(server.leave())


async def read_message(stream: Stream) -> bytes | None:
    """The body of the next message; None at the end of the stream. BadInput for headers without a length."""
    headers, length = b"", None
    try:
        while (line := await stream.readline()).strip():
            headers += line
            if found := _CONTENT_LENGTH.fullmatch(line):
                length = int(found[1])
        if not line:
            return None
        if length is None:
            raise BadInput(f"no Content-Length in the headers {shorten(repr(headers))}")
        body = await stream.readexactly(length)
    except ValueError as error:
        raise BadInput(f"a header without an end: {error}") from error
    except asyncio.IncompleteReadError:
        return None
    return body if len(body) == length else None


def receive(server: MidfillServer, body: bytes) -> None:
    """Pass a message to its handler; see `_refuse` for unreadable ones."""
    text = body.decode("utf-8", "replace")
    message: object = None
    try:
        message = json.loads(text)
        body.decode()  # a replaced byte is an error too, but an answer to it needs the id
        server.protocol.handle_message(server.protocol.structure_message(message))
    except Exception as error:  # noqa: BLE001 - pygls raises what a converter raises
        _refuse(server, text, message if isinstance(message, dict) else None, error)


def _refuse(server: MidfillServer, text: str, message: dict[str, object] | None, error: Exception) -> None:
    """Answer an unreadable request with an error; after an unreadable change, mark its document as out of step.

    A change that does not name an open document marks all of them.
    """
    refusal: JsonRpcException
    if isinstance(error, ValueError | RecursionError):
        refusal = JsonRpcParseError(f"not JSON: {error}: {shorten(text)}")
    elif message is None or isinstance(error, JsonRpcInvalidRequest):
        refusal = JsonRpcInvalidRequest(f"{error}: {shorten(text)}")
    else:
        refusal = JsonRpcInvalidParams(why_unreadable(message, error.__cause__ or error))
    if message is None or ("method" in message and "id" in message):
        message_id = (message or {}).get("id")
        server.protocol.refuse(message_id if isinstance(message_id, str | int) else None, refusal)
    else:
        logger.warning("from the client: %s", refusal)
    if 'Document/didChange"' in text.replace("\\", ""):
        named = [uri for uri in server.session.documents.uris if f'"{uri}"' in text]
        for uri in named or server.session.documents.uris:
            server.request_resync(uri, str(refusal))


_PARENT_SECONDS = 5.0
# By then `initialize` is answered. Collecting garbage among all loaded objects would delay a keystroke by 30 ms.
_SETTLED_SECONDS = 1.0


def make_server(settings: Settings, waiting: WaitingCore | None = None) -> MidfillServer:
    """A language server for one client, with all of its handlers."""
    server = MidfillServer(settings, waiting)
    for handlers in (lifecycle, text_documents, suggestions, next_edits, commands):
        handlers.register(server)
    return server


def run_stdio(settings: Settings, waiting: WaitingCore | None = None) -> None:
    """Serve the client on stdin and stdout until it disconnects; the process ends with LSP's exit status.

    Stdout is for LSP alone: other output goes to stderr, as the log does. `waiting` becomes the first core that is started.
    """
    _log_to_stderr(settings)
    stdout = _Stdout(os.fdopen(os.dup(1), "wb"))
    sys.stdout = sys.stderr
    if sys.platform != "win32":
        os.set_blocking(1, True)  # the client may have made it non-blocking
    asyncio.run(_serve_stdio(settings, waiting, stdout))
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


async def _serve_stdio(settings: Settings, waiting: WaitingCore | None, stdout: _Stdout) -> None:
    server = make_server(settings, waiting)
    server.protocol.set_writer(stdout)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(WORKERS, "blocking"))
    loop.call_later(_SETTLED_SECONDS, garbage.keep_what_is_loaded)
    stdin = await _open_stdin()
    parent = asyncio.create_task(_end_with_parent(server))
    try:
        await serve(server, functools.partial(read_message, stdin))
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

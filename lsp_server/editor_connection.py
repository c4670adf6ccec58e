"""One editor's connection: passes its LSP messages to pygls, and answers unreadable ones with an error."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from typing import Any

from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest, JsonRpcParseError
from pygls.io_ import StdinAsyncReader, run_async

from lsp_server.mistakes import shorten, why_unreadable
from lsp_server.server import MidfillServer
from protocol.errors import BadInput

logger = logging.getLogger(__name__)

_CONTENT_LENGTH = re.compile(rb"content-length:[ \t]*([0-9]{1,9})[ \t]*\r?\n", re.IGNORECASE)
_OTHER_HEADER = re.compile(rb"content-(?!length)[^:]*:.*\r?\n", re.IGNORECASE)
Stream = asyncio.StreamReader | StdinAsyncReader


class MessageReader:
    """Reads LSP messages for pygls, and raises BadInput at the first line that is no header of LSP.

    A web page can make a browser send an HTTP request to any local port. Its first line ends the connection.
    """

    def __init__(self, stream: Stream) -> None:
        self.body = b""
        """The body of the last message."""
        self._stream = stream
        self._begun = False  # whether a header of the next message has been read

    async def readline(self) -> bytes:
        """The next header, spelled as pygls expects it; nothing at the end of the stream."""
        if not self._begun:
            await asyncio.sleep(0)  # the handler of the last message begins before the next one is read
        self._begun = True
        try:
            line = await self._stream.readline()
        except ValueError as error:
            raise BadInput(f"a header without an end: {error}") from error
        if not line.endswith(b"\n"):
            return b""
        if length := _CONTENT_LENGTH.fullmatch(line):
            return b"Content-Length: %b\r\n" % length[1]
        if line.strip() and not _OTHER_HEADER.fullmatch(line):
            raise BadInput(f"not an LSP header: {shorten(repr(line))}")
        return line

    async def readexactly(self, n: int) -> bytes:
        """The body of a message of `n` bytes; nothing if the stream ends within it."""
        self._begun = False
        try:
            self.body = await self._stream.readexactly(n)
        except asyncio.IncompleteReadError:
            return b""
        return self.body if len(self.body) == n else b""


async def serve(server: MidfillServer, stream: Stream) -> None:
    """Handle messages until the stream ends; at `exit`, pygls raises SystemExit with LSP's exit status."""
    reader = MessageReader(stream)

    def refuse_last(error: Exception, _: object) -> None:
        refuse(server, reader.body, error)

    try:
        await run_async(threading.Event(), reader, server.protocol, error_handler=refuse_last)
        logger.info("the client disconnected")
    except BadInput as error:
        logger.error("the connection is closed: %s", error)
    except OSError as error:
        logger.info("the connection broke: %s", error)
    finally:
        await server.leave()


def refuse(server: MidfillServer, body: bytes, error: Exception) -> None:
    """Answer an unreadable request with an error; after an unreadable change, mark its document as out of step.

    A change that does not name an open document marks all of them.
    """
    text = body.decode("utf-8", "replace")
    message = _object_in(text)
    refusal: JsonRpcException
    if isinstance(error, ValueError | RecursionError):
        refusal = JsonRpcParseError(f"not JSON: {error}: {shorten(text)}")
    elif isinstance(error, JsonRpcInvalidRequest):
        refusal = error
    elif message is None or message.get("jsonrpc") != "2.0":
        refusal = JsonRpcInvalidRequest(f"not a JSON-RPC 2.0 message: {shorten(text)}")
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
            server.lose_step(uri, str(refusal))


def _object_in(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`; None if it is none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None

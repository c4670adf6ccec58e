"""The editor's connection: reads its LSP messages, passes them to pygls, and answers unreadable ones with an error."""

from __future__ import annotations

import asyncio
import json
import logging
import re

from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest, JsonRpcParseError
from pygls.io_ import StdinAsyncReader

from lsp_server.mistakes import shorten, why_unreadable
from lsp_server.server import MidfillServer
from protocol.errors import BadInput

logger = logging.getLogger(__name__)

_CONTENT_LENGTH = re.compile(rb"content-length:[ \t]*([0-9]{1,9})\s*", re.IGNORECASE)
Stream = asyncio.StreamReader | StdinAsyncReader


async def serve(server: MidfillServer, stream: Stream) -> None:
    """Handle messages until the stream ends; at `exit`, pygls raises SystemExit with LSP's exit status."""
    try:
        while body := await read_message(stream):
            receive(server, body)
            await asyncio.sleep(0)  # the message's handler begins before the next one is read
        logger.info("the client disconnected")
    except BadInput as error:
        logger.error("the connection is closed: %s", error)
    except OSError as error:
        logger.info("the connection broke: %s", error)
    finally:
        await server.leave()


async def read_message(stream: Stream) -> bytes:
    """The body of the next message; nothing at the end of the stream. BadInput for headers without a length."""
    headers, length = b"", 0
    try:
        while (line := await stream.readline()).strip():
            headers += line
            if found := _CONTENT_LENGTH.fullmatch(line):
                length = int(found[1])
        if line and not length:
            raise BadInput(f"no Content-Length in the headers {shorten(repr(headers))}")
        body = await stream.readexactly(length) if line else b""
    except ValueError as error:
        raise BadInput(f"a header without an end: {error}") from error
    except asyncio.IncompleteReadError:
        return b""
    return body if len(body) == length else b""


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
            server.lose_step(uri, str(refusal))

"""The handlers of messages about documents and cursors: the server mirrors every open document."""

from __future__ import annotations

import hashlib
import logging

from lsprotocol import types

from lsp_server.custom_messages import DID_FOCUS, DID_MOVE_CURSOR, DOCUMENT_HASH, LAST_EXCHANGE, DocumentParams
from lsp_server.editing.documents import Position
from lsp_server.editing.positions import ClientPosition
from lsp_server.mistakes import refusing_bad_input
from lsp_server.server import MidfillServer
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.open_documents import Change
from protocol.errors import BadInput
from protocol.wire import Complete, Completed, encode

logger = logging.getLogger(__name__)


def register(server: MidfillServer) -> None:
    """Register these messages with the server."""
    server.feature(types.TEXT_DOCUMENT_DID_OPEN)(did_open)
    server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(did_change)
    server.feature(types.TEXT_DOCUMENT_DID_CLOSE)(did_close)
    server.feature(DID_MOVE_CURSOR)(did_move_cursor)
    server.feature(DID_FOCUS)(did_focus)
    server.feature(DOCUMENT_HASH)(document_hash)
    server.feature(LAST_EXCHANGE)(last_exchange)


def did_open(ls: MidfillServer, params: types.DidOpenTextDocumentParams) -> None:
    """Mirror the document."""
    item = params.text_document
    ls.session.open(item.uri, item.language_id, item.version, item.text)
    ls.index.used()


def did_change(ls: MidfillServer, params: types.DidChangeTextDocumentParams) -> None:
    """Follow the edits."""
    document, changes = params.text_document, [_change(event) for event in params.content_changes]
    try:
        ls.session.documents.change(document.uri, document.version, changes)
    except BadInput as error:
        logger.warning("the copy of a document is out of step: %s", error)
        ls.notices.lost_step(document.uri, str(error))


def did_close(ls: MidfillServer, params: types.DidCloseTextDocumentParams) -> None:
    """Release the document; the core keeps its KV by the ordinary rules, so that it is hot when opened again."""
    ls.acceptances.closed(params.text_document.uri)
    ls.session.close(params.text_document.uri)


def did_move_cursor(ls: MidfillServer, params: types.TextDocumentPositionParams) -> None:
    """Prepare for typing at the new cursor."""
    ls.index.used()
    ls.session.look_ahead(*place_of(ls, params.text_document, params.position))


def did_focus(ls: MidfillServer, params: DocumentParams) -> None:
    """Prepare for typing at the last cursor."""
    ls.session.look_ahead(ls.session.documents[params.text_document.uri])


@refusing_bad_input
async def document_hash(ls: MidfillServer, params: DocumentParams) -> dict[str, int | str]:
    """Return version, hash and length of the mirror's text."""
    document = ls.session.documents[params.text_document.uri].document
    text = document.text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {"version": document.version, "sha256": digest, "length": len(text)}


@refusing_bad_input
async def last_exchange(ls: MidfillServer, params: DocumentParams) -> dict[str, str] | None:
    """Return the last request to the core and its completion."""
    exchange = ls.session.documents[params.text_document.uri].last_exchange
    if exchange is None:
        return None
    request, completion = exchange
    return {"complete": encode(Complete(0, request)), "completed": encode(Completed(0, completion))}


def place_of(
    ls: MidfillServer, identifier: types.TextDocumentIdentifier, position: types.Position
) -> tuple[OpenDocument, Position]:
    """The open document that a client names, and the position in it in code points; BadInput if there is none such."""
    opened = ls.session.documents[identifier.uri]
    return opened, ls.session.documents.codec.decode(opened.document, client_position(position))


def _change(event: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(event, types.TextDocumentContentChangeWholeDocument):
        return Change(event.text)
    return Change(event.text, (client_position(event.range.start), client_position(event.range.end)))


def client_position(position: types.Position) -> ClientPosition:
    """A position of LSP, in the client's code units."""
    return ClientPosition(position.line, position.character)

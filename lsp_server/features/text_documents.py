"""Handlers of messages about documents, notebooks and cursors: the server mirrors every open document and cell."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable

from lsprotocol import types

from lsp_server.custom_messages import DID_FOCUS, DID_MOVE_CURSOR, DOCUMENT_HASH, LAST_EXCHANGE, DocumentParams
from lsp_server.documents.documents import Position
from lsp_server.documents.positions import ClientPosition
from lsp_server.editor_protocol import refusing_bad_input
from lsp_server.server import MidfillServer
from lsp_server.suggesting.open_documents import Change, OpenDocument
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
    server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)(did_open_notebook)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)(did_change_notebook)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)(did_close_notebook)


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
        ls.notices.out_of_step(document.uri, str(error))


def did_close(ls: MidfillServer, params: types.DidCloseTextDocumentParams) -> None:
    """Release the document; the core keeps its KV by the ordinary rules, so that opening it again is a cache hit."""
    ls.acceptances.closed(params.text_document.uri)
    ls.session.close(params.text_document.uri)
    ls.next_edits.closed(params.text_document.uri)


def did_move_cursor(ls: MidfillServer, params: types.TextDocumentPositionParams) -> None:
    """Prepare for typing at the new cursor."""
    ls.index.used()
    ls.session.prefetch(*place_of(ls, params.text_document, params.position))


def did_focus(ls: MidfillServer, params: DocumentParams) -> None:
    """Prepare for typing at the last cursor."""
    ls.session.prefetch(ls.session.documents[params.text_document.uri])


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


def did_open_notebook(ls: MidfillServer, params: types.DidOpenNotebookDocumentParams) -> None:
    """Mirror the cells, and record their order."""
    _open(ls, params.cell_text_documents)
    _splice(ls, params.notebook_document.uri, 0, 0, params.notebook_document.cells)


def did_change_notebook(ls: MidfillServer, params: types.DidChangeNotebookDocumentParams) -> None:
    """Follow cells that are inserted, deleted, moved or edited."""
    cells = params.change.cells
    if cells is not None and cells.structure is not None:
        array = cells.structure.array
        for closed in cells.structure.did_close or ():  # first: a cell of another language may come by the same URI
            did_close(ls, types.DidCloseTextDocumentParams(closed))
        _open(ls, cells.structure.did_open or ())
        _splice(ls, params.notebook_document.uri, array.start, array.delete_count, array.cells or ())
    for content in (cells.text_content if cells is not None else None) or ():
        did_change(ls, types.DidChangeTextDocumentParams(content.document, content.changes))


def did_close_notebook(ls: MidfillServer, params: types.DidCloseNotebookDocumentParams) -> None:
    """Release the cells; the core keeps their KV by the ordinary rules."""
    for cell in params.cell_text_documents:
        did_close(ls, types.DidCloseTextDocumentParams(cell))
    ls.session.close_notebook(params.notebook_document.uri)


def _open(ls: MidfillServer, items: Iterable[types.TextDocumentItem]) -> None:
    for item in items:
        ls.session.documents.open(item.uri, item.language_id, item.version, item.text)


def _splice(ls: MidfillServer, notebook: str, start: int, deleted: int, cells: Iterable[types.NotebookCell]) -> None:
    try:
        ls.session.documents.splice_cells(notebook, start, deleted, [cell.document for cell in cells])
    except BadInput as error:
        logger.warning("a cell of %s: %s", notebook, error)

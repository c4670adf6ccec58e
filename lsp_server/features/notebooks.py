"""The handlers of LSP's messages about notebooks: each cell is mirrored as a document, in the notebook's order."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lsprotocol import types

from lsp_server.features.text_documents import did_change, did_close
from lsp_server.server import MidfillServer
from protocol.errors import BadInput

logger = logging.getLogger(__name__)


def register(server: MidfillServer) -> None:
    """Register these messages with the server."""
    server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)(did_open_notebook)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)(did_change_notebook)
    server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)(did_close_notebook)


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

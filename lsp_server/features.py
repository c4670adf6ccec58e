"""The handlers of LSP's messages: each reads its parameters, calls the component, and converts its result to LSP."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcInvalidParams

from lsp_server.custom_messages import (
    DID_FOCUS,
    DID_MOVE_CURSOR,
    DOCUMENT_HASH,
    LAST_EXCHANGE,
    DocumentParams,
)
from lsp_server.editing.documents import Position
from lsp_server.editing.positions import ClientPosition, PositionCodec, PositionEncoding
from lsp_server.feedback import suggest
from lsp_server.items import inline_item, popup_item
from lsp_server.server import MidfillServer
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.open_documents import Change
from lsp_server.suggesting.queries import Query, Selected
from protocol.errors import BadInput, BadSettings
from protocol.wire import Complete, Completed, encode

logger = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

# The files that the index reads: `GRAMMAR_BY_SUFFIX` of `lsp_server.context.index.grammars`.
INDEXED = "**/*.{py,pyi,js,mjs,cjs,jsx,ts,mts,cts,tsx,go,rs}"
# The characters that open a popup, besides words.
_TRIGGERS = [".", "(", "[", "{", "=", ",", ":"]


def register(server: MidfillServer) -> None:
    """Register the handlers of all messages, except those that depend on the client."""
    for method, handler in _HANDLERS.items():
        server.feature(method)(handler)
    server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())(inline_completion)


def refusing_bad_input(
    handler: Callable[[MidfillServer, P], Awaitable[R]],
) -> Callable[[MidfillServer, P], Awaitable[R]]:
    """Wrap a request handler: its BadInput becomes an answer of invalid parameters, with the message."""

    @functools.wraps(handler)
    async def refusing(ls: MidfillServer, params: P) -> R:
        try:
            return await handler(ls, params)
        except BadInput as error:
            raise JsonRpcInvalidParams(str(error)) from error

    return refusing


def initialize(ls: MidfillServer, params: types.InitializeParams) -> None:
    """Take the client's capabilities and settings; a bad setting is shown, and then none is taken."""
    ls.notices.introduce(params.capabilities)
    if params.client_info is not None:
        ls.client_name = params.client_info.name
    ls.session.documents.codec = PositionCodec(PositionEncoding(ls.workspace.position_encoding))
    ls.session.documents.use_folders(_folders(ls))
    try:
        ls.take_initial_settings(params.initialization_options)
    except BadSettings as error:
        ls.notices.error(str(error))
    if get_capability(params.capabilities, "text_document.inline_completion") is None:
        ls.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=_TRIGGERS))(completion)


def did_change_folders(ls: MidfillServer, _: types.DidChangeWorkspaceFoldersParams) -> None:
    """Use the ignore rules of the present folders."""
    ls.session.documents.use_folders(_folders(ls))
    ls.keep_index()


async def initialized(ls: MidfillServer, _: types.InitializedParams) -> None:
    """Find or start the core, and have the client report changes of the files that the index has."""
    watched = get_capability(ls.client_capabilities, "workspace.did_change_watched_files")
    if watched is not None and watched.dynamic_registration:
        options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(INDEXED)])
        registration = types.Registration("index", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        ls.client_register_capability(types.RegistrationParams([registration]))
    await ls.connect()


def did_change_watched_files(ls: MidfillServer, _: types.DidChangeWatchedFilesParams) -> None:
    """Bring the index up to date soon."""
    ls.index.changed()


def shutdown(ls: MidfillServer, _: None) -> None:
    """Save the statistics: some clients end the process as soon as this is answered."""
    ls.save_statistics()


async def did_change_configuration(ls: MidfillServer, params: types.DidChangeConfigurationParams) -> None:
    """Take the changed settings, or request them if the client only announces a change."""
    given: Any = params.settings
    if given is None and get_capability(ls.client_capabilities, "workspace.configuration"):
        section = types.ConfigurationParams([types.ConfigurationItem(section="midfill")])
        (ours,) = await ls.workspace_configuration_async(section)
        given = {"midfill": ours}
    try:
        ls.take_changed_settings(given)
    except BadSettings as error:
        ls.notices.error(str(error))


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
    ls.session.look_ahead(*_place(ls, params.text_document, params.position))


def did_focus(ls: MidfillServer, params: DocumentParams) -> None:
    """Prepare for typing at the last cursor."""
    ls.session.look_ahead(ls.session.documents[params.text_document.uri])


@refusing_bad_input
async def inline_completion(ls: MidfillServer, params: types.InlineCompletionParams) -> types.InlineCompletionList:
    """Suggest inline; without a suggestion the list is empty, since on null some clients keep showing the last one."""
    opened, cursor = _place(ls, params.text_document, params.position)
    invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
    if invoked:
        ls.link.start_again()
    query = Query(cursor, invoked, _selected(ls, opened, cursor, params.context.selected_completion_info))
    insertions, commands = await suggest(ls, opened, query)
    item = functools.partial(inline_item, ls.session.documents.codec, opened.document, cursor)
    return types.InlineCompletionList(list(map(item, insertions, commands)))


@refusing_bad_input
async def completion(ls: MidfillServer, params: types.CompletionParams) -> types.CompletionList:
    """Suggest in the popup, for clients without inline completion."""
    opened, cursor = _place(ls, params.text_document, params.position)
    insertions, commands = await suggest(ls, opened, Query(cursor), waits_for_core=False)
    item = functools.partial(popup_item, ls.session.documents.codec, opened.document, cursor)
    return types.CompletionList(is_incomplete=True, items=list(map(item, insertions, commands)))


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


_HANDLERS: dict[str, Callable[..., Any]] = {
    types.INITIALIZE: initialize,
    types.INITIALIZED: initialized,
    types.SHUTDOWN: shutdown,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: did_change_configuration,
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: did_change_folders,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: did_change_watched_files,
    types.TEXT_DOCUMENT_DID_OPEN: did_open,
    types.TEXT_DOCUMENT_DID_CHANGE: did_change,
    types.TEXT_DOCUMENT_DID_CLOSE: did_close,
    DID_MOVE_CURSOR: did_move_cursor,
    DID_FOCUS: did_focus,
    DOCUMENT_HASH: document_hash,
    LAST_EXCHANGE: last_exchange,
}


def _folders(ls: MidfillServer) -> list[str]:
    """The URIs of the client's workspace folders, or of its root if it has no folders."""
    root = ls.workspace.root_uri
    return list(ls.workspace.folders) or ([root] if root else [])


def _place(
    ls: MidfillServer, identifier: types.TextDocumentIdentifier, position: types.Position
) -> tuple[OpenDocument, Position]:
    opened = ls.session.documents[identifier.uri]
    return opened, ls.session.documents.codec.decode(opened.document, _client(position))


def _selected(
    ls: MidfillServer, opened: OpenDocument, cursor: Position, info: types.SelectedCompletionInfo | None
) -> Selected | None:
    """The selected entry of the popup; BadInput if it does not lie around the cursor, on its line."""
    if info is None:
        return None
    codec, document = ls.session.documents.codec, opened.document
    start, end = (codec.decode(document, _client(place)) for place in (info.range.start, info.range.end))
    if not start.line == cursor.line == end.line or not start <= cursor <= end:
        raise BadInput(
            f"the selected entry, from {tuple(start)} to {tuple(end)}, does not contain the cursor {tuple(cursor)}"
        )
    return Selected(start.column, end.column, info.text)


def _change(event: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(event, types.TextDocumentContentChangeWholeDocument):
        return Change(event.text)
    return Change(event.text, (_client(event.range.start), _client(event.range.end)))


def _client(position: types.Position) -> ClientPosition:
    return ClientPosition(position.line, position.character)

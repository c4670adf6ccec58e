"""The handlers of messages about the server itself: its start and end, its folders, watched files and settings."""

from __future__ import annotations

from typing import Any

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException

from lsp_server.documents.positions import PositionCodec, PositionEncoding
from lsp_server.features.suggestions import completion
from lsp_server.server import MidfillServer
from protocol.errors import BadInput, BadSettings

# The files that the index reads: `GRAMMAR_BY_SUFFIX` of `lsp_server.context.index.grammars`.
INDEXED = "**/*.{py,pyi,pyw,js,mjs,cjs,jsx,ts,mts,cts,tsx,go,rs}"
# The characters that open a popup, besides words.
_TRIGGERS = [".", "(", "[", "{", "=", ",", ":"]


def register(server: MidfillServer) -> None:
    """Register these messages with the server."""
    server.feature(types.INITIALIZE)(initialize)
    server.feature(types.INITIALIZED)(initialized)
    server.feature(types.SHUTDOWN)(shutdown)
    server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(did_change_configuration)
    server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(did_change_folders)
    server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(did_change_watched_files)
    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(did_save)


def initialize(ls: MidfillServer, params: types.InitializeParams) -> None:
    """Take the client's capabilities and settings; a bad setting is shown, and then none of the client's is taken."""
    ls.notices.introduce(params.capabilities)
    if params.client_info is not None:
        ls.client_name = params.client_info.name
    ls.session.documents.codec = PositionCodec(PositionEncoding(ls.workspace.position_encoding))
    ls.session.documents.use_folders(_folders(ls))
    try:
        ls.take_initial_settings(params.initialization_options)
    except BadSettings as error:
        ls.notices.error(str(error))
        ls.take_initial_settings(None)
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
        patterns = (INDEXED, "**/.gitignore", "**/.midfillignore")
        options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(each) for each in patterns])
        registration = types.Registration("index", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        ls.client_register_capability(types.RegistrationParams([registration]))
    await ls.connect()


def did_change_watched_files(ls: MidfillServer, params: types.DidChangeWatchedFilesParams) -> None:
    """Bring the index up to date with these files soon."""
    ls.index.changed(change.uri for change in params.changes)


def did_save(ls: MidfillServer, params: types.DidSaveTextDocumentParams) -> None:
    """Bring the index up to date with the file soon, as the client may watch none."""
    ls.index.changed([params.text_document.uri])


def shutdown(ls: MidfillServer, _: None) -> None:
    """Save the statistics: some clients end the process as soon as this is answered."""
    ls.save_statistics()


async def did_change_configuration(ls: MidfillServer, params: types.DidChangeConfigurationParams) -> None:
    """Take the changed settings, or request them if the client only announces a change."""
    given: Any = params.settings
    if given is None and get_capability(ls.client_capabilities, "workspace.configuration"):
        given = {"midfill": await _settings_of_client(ls)}
    try:
        ls.take_changed_settings(given)
    except BadSettings as error:
        ls.notices.error(str(error))


async def _settings_of_client(ls: MidfillServer) -> object:
    """What the client answers when it is asked for its settings; BadInput if that is not a list of the one item."""
    section = types.ConfigurationParams([types.ConfigurationItem(section="midfill")])
    answer: object
    try:
        answer = await ls.workspace_configuration_async(section)
    except JsonRpcException as error:
        raise BadInput(f"{types.WORKSPACE_CONFIGURATION}: {error}") from error
    match answer:
        case [ours]:
            return ours
    raise BadInput(f"{types.WORKSPACE_CONFIGURATION}: expected a list of one item, not {answer!r:.100}")


def _folders(ls: MidfillServer) -> list[str]:
    """The URIs of the client's workspace folders, or of its root if it has no folders."""
    root = ls.workspace.root_uri
    return list(ls.workspace.folders) or ([root] if root else [])

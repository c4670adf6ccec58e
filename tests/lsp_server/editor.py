"""An editor for tests: a client of a language server in this process, over TCP, that keeps what it is told."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, default_converter

from lsp_server.custom_messages import (
    DID_MOVE_CURSOR,
    DID_SWITCH,
    DOCUMENT_HASH,
    REASON,
    REASON_REQUEST,
    REFRESH,
    RESYNC,
    STATUS,
    USAGE,
)
from lsp_server.launch import make_server, read_message, serve
from protocol.settings import Settings
from tests.lsp_server.fake_core import FakeCore

URI = "file:///project/a.py"
PATIENCE_S = 100.0
"""For what happens at once where no other process has the CPU."""


_make_converter = functools.cache(default_converter)


class Editor(LanguageClient):
    def __init__(self) -> None:
        super().__init__("test-editor", "1", converter_factory=_make_converter)
        self.statuses: list[Any] = []
        self.usages: list[Any] = []
        self.resyncs: list[Any] = []
        self.reasons: list[Any] = []
        self.refreshes: list[Any] = []
        self.messages: list[str] = []
        self.progress: list[Any] = []
        self.progress_tokens: list[types.ProgressToken] = []  # of each value in `progress`
        self.registered: list[types.Registration] = []
        self.server: types.InitializeResult | None = None
        self.configuration: object = None
        self.feature(STATUS)(lambda params: self.statuses.append(params))
        self.feature(USAGE)(lambda params: self.usages.append(params))
        self.feature(RESYNC)(lambda params: self.resyncs.append(params))
        self.feature(REASON)(lambda params: self.reasons.append(params.reason))
        self.feature(REFRESH)(lambda params: self.refreshes.append(params))
        self.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self.messages.append(params.message))
        self.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)(lambda params: None)
        self.feature(types.PROGRESS)(lambda params: self._note_progress(params))
        self.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda params: self.registered.extend(params.registrations))
        self.feature(types.WORKSPACE_CONFIGURATION)(lambda params: [self.configuration])

    def _note_progress(self, params: types.ProgressParams) -> None:
        self.progress.append(params.value)
        self.progress_tokens.append(params.token)

    async def start(
        self,
        settings: dict[str, Any],
        *,
        encoding: str = "utf-16",
        experimental: bool = True,
        inline: bool = True,
        progress: bool = False,
        status: bool = False,
        folder: str | None = None,
    ) -> None:
        inline_capabilities = types.InlineCompletionClientCapabilities() if inline else None
        capabilities = types.ClientCapabilities(
            general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind(encoding)]),
            text_document=types.TextDocumentClientCapabilities(inline_completion=inline_capabilities),
            window=types.WindowClientCapabilities(work_done_progress=progress),
            workspace=types.WorkspaceClientCapabilities(
                configuration=True,
                did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True),
            ),
            experimental={"midfill": True, "didChangeStatus": status} if experimental else None,
        )
        params = types.InitializeParams(capabilities=capabilities, initialization_options=settings, root_uri=folder)
        self.server = await self.initialize_async(params)
        self.initialized(types.InitializedParams())

    def open(self, text: str, *, uri: str = URI, language: str = "python", version: int = 1) -> None:
        item = types.TextDocumentItem(uri=uri, language_id=language, version=version, text=text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, version: int, start: tuple[int, int], end: tuple[int, int], text: str, *, uri: str = URI) -> None:
        span = types.Range(types.Position(*start), types.Position(*end))
        change = types.TextDocumentContentChangePartial(range=span, text=text)
        identifier = types.VersionedTextDocumentIdentifier(version=version, uri=uri)
        self.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))

    def replace_all(self, version: int, text: str, *, uri: str = URI) -> None:
        identifier = types.VersionedTextDocumentIdentifier(version=version, uri=uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))

    def close(self, *, uri: str = URI) -> None:
        self.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))

    def configure(self, settings: Any) -> None:
        self.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))

    def move_cursor(self, line: int, character: int, *, uri: str = URI) -> None:
        params = types.TextDocumentPositionParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
        self.protocol.notify(DID_MOVE_CURSOR, params)

    async def suggest(
        self,
        line: int,
        character: int,
        *,
        uri: str = URI,
        kind: types.InlineCompletionTriggerKind = types.InlineCompletionTriggerKind.Automatic,
    ) -> list[types.InlineCompletionItem]:
        result = await self.text_document_inline_completion_async(inline_params(line, character, uri=uri, kind=kind))
        assert isinstance(result, types.InlineCompletionList)
        return list(result.items)

    async def suggested_text(self, line: int, character: int, *, uri: str = URI) -> str:
        items = await self.suggest(line, character, uri=uri)
        assert len(items) <= 1
        return str(items[0].insert_text) if items else ""

    async def ask_in_json(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request as it is written, also where it breaks LSP's rules."""
        message_id = str(uuid.uuid4())
        future = self.protocol._request_futures[message_id] = Future()
        self.protocol._send_data(JsonRPCRequestMessage(message_id, method, "2.0", params))
        return await asyncio.wrap_future(future)

    def tell_in_json(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification as it is written, also where it breaks LSP's rules."""
        self.protocol._send_data(JsonRPCNotification(method, "2.0", params))

    async def document_hash(self, *, uri: str = URI) -> Any:
        params = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        return await self.protocol.send_request_async(DOCUMENT_HASH, params)

    async def last_reason(self, *, uri: str = URI) -> Any:
        params = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        return await self.protocol.send_request_async(REASON_REQUEST, params)

    def switch(self, off: str | None, rivals: list[str] | None = None, *, uri: str = URI) -> None:
        self.tell_in_json(DID_SWITCH, {"textDocument": {"uri": uri}, "off": off, "rivals": rivals})

    def send(self, body: bytes) -> None:
        """Send the body of a message, whatever it is."""
        self.protocol.writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def execute(self, command: str, *arguments: object) -> Any:
        return await self.workspace_execute_command_async(types.ExecuteCommandParams(command, list(arguments)))

    async def last_usage(self) -> Any:
        """What was told last: behind an answer, so before the next one."""
        await self.document_hash()
        return self.usages[-1]

    async def leave(self) -> None:
        """Say goodbye as LSP has it, and wait for the server to end the connection."""
        await self.shutdown_async(None)
        self.exit(None)
        await asyncio.wait_for(self._async_tasks[0], PATIENCE_S)  # which reads

    async def until_state(self, state: str) -> None:
        await until(lambda: bool(self.statuses) and self.statuses[-1].state == state)


def inline_params(
    line: int,
    character: int,
    *,
    uri: str = URI,
    kind: types.InlineCompletionTriggerKind = types.InlineCompletionTriggerKind.Automatic,
) -> types.InlineCompletionParams:
    identifier, position = types.TextDocumentIdentifier(uri), types.Position(line, character)
    return types.InlineCompletionParams(types.InlineCompletionContext(kind), identifier, position)


async def until(true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def connected_editor(settings: Settings | None = None) -> AsyncIterator[Editor]:
    """An editor, not yet initialized, and a language server of its own."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = make_server(settings or Settings())
        server.protocol.set_writer(writer)
        try:
            with suppress(SystemExit):
                await serve(server, partial(read_message, reader))
        finally:
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    editor = Editor()
    await editor.start_tcp("127.0.0.1", listener.sockets[0].getsockname()[1])
    try:
        yield editor
        await editor.leave()
    finally:
        editor.protocol.writer.close()
        await editor.stop()
        listener.close()


@asynccontextmanager
async def editor_on(
    core: FakeCore, *, state: str = "ready", settings: Mapping[str, Any] | None = None, **capabilities: Any
) -> AsyncIterator[Editor]:
    """An editor whose language server is connected to the fake core, which is in this state."""
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token, **(settings or {})}, **capabilities)
        await editor.until_state(state)
        yield editor

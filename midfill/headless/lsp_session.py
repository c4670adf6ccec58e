"""An editor's session without a screen: its open documents in a language server, and the suggestions and costs it
receives.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from lsprotocol import types

from lsp_server.custom_messages import (
    DID_MOVE_CURSOR,
    DOCUMENT_HASH,
    INLINE_EDIT,
    LAST_EXCHANGE,
    REASON,
    REFRESH,
    STATUS,
    USAGE,
    DocumentVersion,
    InlineEditParams,
)
from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.documents.positions import ClientPosition, PositionCodec, PositionEncoding
from midfill.headless.lsp_process import Asked, LanguageServerFailed, LspProcess
from protocol.messages import CacheOutcome, Completion, CompletionRequest, Usage
from protocol.wire import Complete, Completed, decode_client, decode_core


@dataclass(frozen=True, slots=True)
class ShownSuggestion:
    """An item of an inline completion: `text` replaces [start, end)."""

    text: str
    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The cost of a prompt, as the server reports it (`midfill/usage`)."""

    uri: str
    version: int
    position: ClientPosition  # of the prompt's cursor
    is_prefetch: bool  # whether it was a prefetch
    source: str
    cache_outcome: CacheOutcome
    usage: Usage
    milliseconds: float  # from the request to the core to its answer

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> UsageReport:
        """From the parameters of `midfill/usage`."""
        return cls(
            uri=fields["textDocument"]["uri"],
            version=fields["version"],
            position=ClientPosition(**fields["position"]),
            is_prefetch=fields["isPrefetch"],
            source=fields["source"],
            cache_outcome=fields["cacheOutcome"],
            usage=Usage(**fields["usage"]),
            milliseconds=fields["ms"],
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; `cost` is None if the server sent nothing to the core."""

    suggestions: tuple[ShownSuggestion, ...]
    milliseconds: float  # from the bytes of the request to those of the answer, at the pipes
    cost: UsageReport | None


class ServerStatus(msgspec.Struct, frozen=True):
    """The server's status (`midfill/status`)."""

    state: str
    message: str
    model: str
    device: str
    progress: float | None  # of loading, 0..1; None if unknown


LANGUAGE_SERVER = (sys.executable, "-P", "-m", "midfill", "lsp")
"""The command that runs midfill's own, without what lies in the current folder."""

_CostKey = tuple[str, int, ClientPosition]  # the URI and version of a document, and a cursor in it


@asynccontextmanager
async def open_session(
    command: Sequence[str],
    *,
    encoding: PositionEncoding = PositionEncoding.UTF16,
    settings: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[LspSession]:
    """Start `command` as an editor would, and end it with the block.

    `settings` are its initializationOptions; `environment` is laid over this process's own.
    """
    process = LspProcess()
    await process.launch(command, environment)
    try:
        session = LspSession(process, encoding)
        await session.initialize(settings or {})
        yield session
    finally:
        await process.end()


class LspSession:
    """One initialized language server and the documents open in it; `open_session` creates it.

    Positions are in code points: the session converts them, with its own mirror of each document.
    """

    def __init__(self, process: LspProcess, encoding: PositionEncoding) -> None:
        self.documents: dict[str, Document] = {}
        self.status: ServerStatus | None = None
        self.prefetches: list[UsageReport] = []  # of prefetches, oldest first; the caller may clear it
        self.messages: list[str] = []  # that an editor would have shown in a popup
        self._process = process
        self._codec = PositionCodec(encoding)
        self._costs: dict[_CostKey, UsageReport] = {}  # of answers, until `take_cost`
        self._news = asyncio.Event()
        process.hear(STATUS, self._heard_status)
        process.hear(USAGE, self._heard_usage)
        process.hear(types.WINDOW_SHOW_MESSAGE, self._heard_message)
        for told in (REASON, REFRESH):  # for people
            process.hear(told, lambda _: None)

    async def initialize(self, settings: Mapping[str, object]) -> None:
        """Initialize the server; LanguageServerFailed if it does not accept the position encoding."""
        wanted = self._codec.encoding.value
        capabilities = types.ClientCapabilities(
            general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind(wanted)]),
            text_document=types.TextDocumentClientCapabilities(inline_completion=types.InlineCompletionClientCapabilities()),
            experimental={"midfill": True},
        )
        params = types.InitializeParams(capabilities=capabilities, initialization_options=dict(settings))
        result = await self._process.ask(types.INITIALIZE, params)
        agreed = result.capabilities.position_encoding or PositionEncoding.UTF16.value
        if agreed != wanted:
            raise LanguageServerFailed(f"the language server counts columns in {agreed}, not in {wanted}")
        self._process.send(types.INITIALIZED, types.InitializedParams())

    def open(self, uri: str, language_id: str, text: str) -> None:
        """Open a document with version 1."""
        self._forget_costs(uri)
        self.documents[uri] = Document.from_text(uri, language_id, 1, text)
        item = types.TextDocumentItem(uri=uri, language_id=language_id, version=1, text=text)
        self._process.send(types.TEXT_DOCUMENT_DID_OPEN, types.DidOpenTextDocumentParams(item))

    def change(self, uri: str, edits: Sequence[Edit]) -> None:
        """Apply the edits, each in the coordinates that the one before it left, and send them as one version."""
        document = self.documents[uri]
        changes: list[types.TextDocumentContentChangeEvent] = []
        for edit in edits:
            span = types.Range(self._encode(document, edit.start), self._encode(document, edit.end))
            document.apply(edit)
            changes.append(types.TextDocumentContentChangePartial(range=span, text=edit.text))
        document.version += 1
        identifier = types.VersionedTextDocumentIdentifier(version=document.version, uri=uri)
        self._process.send(types.TEXT_DOCUMENT_DID_CHANGE, types.DidChangeTextDocumentParams(identifier, changes))

    def move_cursor(self, uri: str, cursor: Position) -> None:
        """Announce a cursor move without an edit."""
        position = self._encode(self.documents[uri], cursor)
        params = types.TextDocumentPositionParams(types.TextDocumentIdentifier(uri), position)
        self._process.send(DID_MOVE_CURSOR, params)

    def close(self, uri: str) -> None:
        del self.documents[uri]
        params = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        self._process.send(types.TEXT_DOCUMENT_DID_CLOSE, params)

    async def suggest(self, uri: str, cursor: Position) -> Answer:
        """Request a suggestion as an editor does while the user types, and wait for it."""
        return await self.begin_suggest(uri, cursor).wait()

    def begin_suggest(self, uri: str, cursor: Position) -> PendingAnswer:
        """Request a suggestion without waiting."""
        document = self.documents[uri]
        context = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
        position = self._encode(document, cursor)
        self._costs.pop((uri, document.version, ClientPosition(position.line, position.character)), None)
        params = types.InlineCompletionParams(context, types.TextDocumentIdentifier(uri), position)
        asked = self._process.begin(types.TEXT_DOCUMENT_INLINE_COMPLETION, params)
        return PendingAnswer(self, asked, document, cursor, position)

    async def next_edit(self, uri: str, cursor: Position) -> Edit | None:
        """Request a next edit, and wait for it; None if there is none."""
        document = self.documents[uri]
        params = InlineEditParams(DocumentVersion(uri, document.version), self._encode(document, cursor))
        edits = (await self._process.ask(INLINE_EDIT, params))["edits"]
        if not edits:
            return None
        (edit,) = edits
        start, end = (self.decode(document, types.Position(**edit["range"][side])) for side in ("start", "end"))
        return Edit(start, end, edit["text"])

    async def document_hash(self, uri: str) -> str:
        """The SHA-256 of the server's mirror of the document, as UTF-8."""
        params = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        result = await self._process.ask(DOCUMENT_HASH, params)
        return str(result["sha256"])

    async def last_exchange(self, uri: str) -> tuple[CompletionRequest, Completion] | None:
        """The server's last request to the core for the document, and its completion; None if there was none."""
        params = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        result = await self._process.ask(LAST_EXCHANGE, params)
        if result is None:
            return None
        asked, answered = decode_client(result["complete"]), decode_core(result["completed"])
        assert isinstance(asked, Complete)
        assert isinstance(answered, Completed)
        return asked.request, answered.completion

    async def wait_until_ready(self, silence_s: float) -> None:
        """Return when the model is in memory; servers load it when a document is first opened, if they prepare always.

        LanguageServerFailed, with the server's message, if loading fails, or if the server's status does not change for
        `silence_s` seconds.
        """
        while (status := self.status) is None or status.state != "ready":
            if status is not None and status.state == "failed":
                raise LanguageServerFailed(status.message)
            try:
                async with asyncio.timeout(silence_s):  # in this task, so that no news comes before the wait begins
                    await self._wait_for_news()
            except TimeoutError as error:
                said = f"{status.state} {status.message}".strip() if status else "nothing"
                raise LanguageServerFailed(
                    f"no model is ready; the language server's last status, {silence_s:.0f} s ago: {said}"
                ) from error

    async def wait_for_prefetch(self, timeout_s: float) -> UsageReport | None:
        """The cost of the next prefetch, such as after a move; None if there is none within `timeout_s`."""
        count = len(self.prefetches)
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.prefetches) == count:
                    await self._wait_for_news()
        except TimeoutError:
            return None
        return self.prefetches[-1]

    def cancel(self, message_id: str) -> None:
        """Cancel a request in the server."""
        self._process.send(types.CANCEL_REQUEST, types.CancelParams(message_id))

    async def receive(self, asked: Asked) -> tuple[types.InlineCompletionItem, ...]:
        """The items of an answered request; errors as in `LspProcess.finish`."""
        result = await self._process.finish(asked)
        return tuple(result.items if isinstance(result, types.InlineCompletionList) else result or ())

    def decode(self, document: Document, position: types.Position) -> Position:
        """The server's position in code points of the document as it is now."""
        return self._codec.decode(document, ClientPosition(position.line, position.character))

    async def take_cost(self, uri: str, version: int, position: types.Position) -> UsageReport | None:
        """The cost of an answer that has arrived, once; None if the server sent nothing to the core.

        The server sends it right after the answer, before any other answer.
        """
        key = uri, version, ClientPosition(position.line, position.character)
        if key not in self._costs and uri in self.documents:
            await self.document_hash(uri)
        return self._costs.pop(key, None)

    def _forget_costs(self, uri: str, before: float = math.inf) -> None:
        """Forget the costs of a document's versions before this one, which `take_cost` will not need."""
        self._costs = {key: cost for key, cost in self._costs.items() if key[0] != uri or key[1] >= before}

    def _encode(self, document: Document, position: Position) -> types.Position:
        document.check(position)
        encoded = self._codec.encode(document, position)
        return types.Position(encoded.line, encoded.character)

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _heard_status(self, message: Any) -> None:
        self.status = msgspec.convert(message, ServerStatus)
        self._news.set()

    def _heard_usage(self, message: Any) -> None:
        cost = UsageReport.from_json(message)
        if cost.is_prefetch:
            self.prefetches.append(cost)
            self._news.set()
        else:
            self._forget_costs(cost.uri, before=cost.version)
            self._costs[cost.uri, cost.version, cost.position] = cost

    def _heard_message(self, message: types.ShowMessageParams) -> None:
        self.messages.append(message.message)


class PendingAnswer:
    """A request on its way: wait for its answer, or cancel it."""

    def __init__(self, session: LspSession, asked: Asked, document: Document, cursor: Position, position: types.Position) -> None:
        self._session = session
        self._request = asked
        self._document = document
        self._version = document.version
        self._cursor = cursor
        self._position = position  # the cursor, as the server counts

    def cancel(self) -> None:
        """Ask the server to stop; `wait` then raises Cancelled, unless the answer was on its way already."""
        if not self._request.future.done():
            self._session.cancel(self._request.id)

    async def wait(self) -> Answer:
        """The answer; it has no suggestions if the document has changed since, as they are of another text."""
        items = await self._session.receive(self._request)
        if self._document.version != self._version:
            return Answer((), self._request.milliseconds, None)
        suggestions = tuple(map(self._suggestion, items))  # before anything else can change the document
        cost = await self._session.take_cost(self._document.uri, self._version, self._position)
        return Answer(suggestions, self._request.milliseconds, cost)

    def _suggestion(self, item: types.InlineCompletionItem) -> ShownSuggestion:
        text = item.insert_text if isinstance(item.insert_text, str) else item.insert_text.value
        if item.range is None:
            return ShownSuggestion(text, self._cursor, self._cursor)
        start, end = item.range.start, item.range.end
        return ShownSuggestion(text, self._session.decode(self._document, start), self._session.decode(self._document, end))

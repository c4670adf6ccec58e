"""The playground: its application, its messages, and the session of each page with its documents and its core."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from inference.core.admission import SUBPROTOCOL, Access, RefuseForeign, RequireToken
from inference.core.connections import Connections, LoopShares
from inference.core.http.responses import HANDLERS
from inference.core.pages import PageKeys, key_route, page_routes
from inference.core.websocket import Outbox
from lsp_server.core_client.control import describe_cores
from lsp_server.core_client.link import CoreLink, LinkStatus, target_of
from lsp_server.documents.documents import Document, Position
from lsp_server.documents.positions import ClientPosition
from lsp_server.filters.cursor_context import Insertion
from lsp_server.models import models_of_this_machine
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_documents import Change, OpenDocument
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.reasons import Reason
from lsp_server.suggesting.requests import PromptCost
from protocol.errors import BadInput, MidfillError
from protocol.messages import CacheOutcome, Usage, Value
from protocol.rendezvous import resolve_model, runtime_folder
from protocol.settings import Settings


class PagePosition(Value, frozen=True):
    """A position as in LSP: line and character from 0, in UTF-16 code units."""

    line: int
    character: int


class PageReplacement(Value, frozen=True):
    """A change: the text between two places becomes another one."""

    start: PagePosition
    end: PagePosition
    text: str


class Open(Value, frozen=True, tag=True):
    """From the page: show this document; it replaces one of the same name."""

    name: str
    language: str
    text: str


class PageEdit(Value, frozen=True, tag="Edit"):
    """From the page: changes of an open document, each in the coordinates that the one before it left."""

    name: str
    version: int
    changes: tuple[PageReplacement, ...]


class Suggest(Value, frozen=True, tag=True):
    """From the page: suggest here; `invoked` by hand, which asks for alternatives and shows unlikely ones too."""

    id: int
    name: str
    place: PagePosition
    invoked: bool = False


class Move(Value, frozen=True, tag=True):
    """From the page: the cursor moved without an edit."""

    name: str
    place: PagePosition


class ListModels(Value, frozen=True, tag=True):
    """From the page: send the models of this machine."""


class UseModel(Value, frozen=True, tag=True):
    """From the page: connect to the core of this model, and start it if none runs."""

    model: str


class Suggestions(Value, frozen=True, tag=True):
    """To the page: the texts for `id`, the best first, and how many UTF-16 units behind the cursor each replaces."""

    id: int
    items: tuple[tuple[str, int], ...]


class PageCost(Value, frozen=True, tag="Cost"):
    """To the page: what a prompt cost."""

    is_prefetch: bool
    source: Literal["core", "typed"]
    cache_outcome: CacheOutcome
    milliseconds: float
    usage: Usage


class Status(Value, frozen=True, tag=True):
    """To the page: the core's status, and the model that the page asked for."""

    state: str
    model: str
    device: str = ""
    message: str = ""
    progress: float | None = None


class Excluded(Value, frozen=True, tag=True):
    """To the page: why this document gets no suggestions, whatever the reason; None once it does."""

    name: str
    reason: str | None


class Models(Value, frozen=True, tag=True):
    """To the page: the models on this machine."""

    models: tuple[ListedModel, ...]


class ListedModel(Value, frozen=True):
    """A model by its name, in words, and why it cannot run here; `running` if a core serves it."""

    name: str
    summary: str
    problem: str = ""
    running: bool = False


class PageFailed(Value, frozen=True, tag="Failed"):
    """To the page: a message could not be carried out; `id` is that of a suggestion's request."""

    message: str
    id: int | None = None


FromPage = Open | PageEdit | Suggest | Move | ListModels | UseModel
ToPage = Suggestions | PageCost | Status | Excluded | Models | PageFailed

_from_pages: msgspec.json.Decoder[FromPage] = msgspec.json.Decoder(FromPage)


def decode(text: str) -> FromPage:
    """The message in `text`; BadInput, with the field at fault, if it is none."""
    try:
        return _from_pages.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not a message of the playground: {error}: {text[:200]!r}") from error


def encode(message: ToPage) -> str:
    """The JSON text of a message."""
    return msgspec.json.encode(message).decode()


_MOST_DOCUMENTS = 64
_SCHEME = "untitled:"  # the page's documents are no files


class PageSession:
    """As a language server has for its editor: an editing session, and the link to the core of one model."""

    def __init__(self, settings: Settings, send: Callable[[ToPage], None]) -> None:
        self._send = send
        self._link = CoreLink(self._core_changed)
        settings = replace(settings, prepare_ahead="always")  # who opens the page is about to type there
        self._editing = EditingSession(self._link, settings, secrets.token_hex(4), self._report_cost, self._report_reason)
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = time.time()

    async def connect(self) -> None:
        """Find or start the core of the present model, and leave the previous one."""
        await self._link.connect_to(target_of(self._editing.settings, self._began))

    async def close(self) -> None:
        """Release the documents, and leave the core, which keeps running."""
        for uri in self._editing.documents.uris:
            self._editing.close(uri)
        for task in self._tasks:
            task.cancel()
        await self._link.stop()

    def receive(self, message: FromPage) -> None:
        """Carry out a message; BadInput if it does not fit the documents."""
        match message:
            case Open():
                self._open(message)
            case PageEdit():
                changes = [Change(one.text, (_client(one.start), _client(one.end))) for one in message.changes]
                self._editing.documents.change(_uri(message.name), message.version, changes)
            case Move():
                self._editing.prefetch(*self._place(message.name, message.place))
            case Suggest():
                if message.invoked:
                    self._link.start_again()
                self._start(self._suggest(message), message.id)
            case ListModels():
                self._start(self._list_models())
            case UseModel():
                self._editing.configure(replace(self._editing.settings, model=message.model))
                self._start(self._use_chosen())

    def _open(self, message: Open) -> None:
        others = [uri for uri in self._editing.documents.uris if uri != _uri(message.name)]
        if len(others) >= _MOST_DOCUMENTS:
            raise BadInput(f"{len(others)} documents are open, the most of one page")
        self._editing.open(_uri(message.name), message.language, 0, message.text)

    def _place(self, name: str, place: PagePosition) -> tuple[OpenDocument, Position]:
        opened = self._editing.documents[_uri(name)]
        return opened, self._editing.documents.codec.decode(opened.document, _client(place))

    async def _suggest(self, message: Suggest) -> None:
        opened, cursor = self._place(message.name, message.place)
        insertions = await self._editing.suggest(opened, Query(cursor, message.invoked))
        items = tuple((one.text, self._replaced_units(opened.document, cursor, one)) for one in insertions)
        self._editing.explainer.report(opened)
        self._send(Suggestions(message.id, items))

    def _replaced_units(self, document: Document, cursor: Position, insertion: Insertion) -> int:
        if not insertion.replaced:
            return 0
        replaced = document.lines[cursor.line][cursor.column : cursor.column + insertion.replaced]
        return self._editing.documents.codec.units(replaced)

    async def _list_models(self) -> None:
        settings = self._editing.settings
        if settings.core:
            raise BadInput(f"the core at {settings.core} is on another machine: its model is chosen there")
        cores = {core["model"] for core in await describe_cores(runtime_folder()) if core["state"] != "stopped"}
        found = [
            ListedModel(model["name"], _summary(model), model["problem"], resolve_model(model["name"]) in cores)
            for model in await models_of_this_machine(settings)
            if model["here"]
        ]
        self._send(Models(tuple(found)))

    async def _use_chosen(self) -> None:
        await self.connect()
        self._link.start_again()

    def _core_changed(self, status: LinkStatus) -> None:
        core = status.core
        device, progress = (core.device, core.progress) if core else ("", None)
        self._send(Status(status.state, self._editing.settings.model, device, status.message, progress))
        self._editing.core_changed(status)

    def _report_cost(self, cost: PromptCost) -> None:
        self._send(PageCost(cost.is_prefetch, cost.source, cost.cache_outcome, cost.milliseconds, cost.usage))

    def _report_reason(self, uri: str, reason: Reason | None) -> None:
        why = reason.explanation if reason is not None and reason.lasts else None
        self._send(Excluded(uri.removeprefix(_SCHEME), why))

    def _start(self, work: Coroutine[Any, Any, None], request_id: int | None = None) -> None:
        task = asyncio.create_task(self._carry_out(work, request_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, work: Coroutine[Any, Any, None], request_id: int | None) -> None:
        try:
            await work
        except (MidfillError, OSError) as error:
            self._send(PageFailed(str(error), request_id))


def _uri(name: str) -> str:
    return _SCHEME + name


def _client(place: PagePosition) -> ClientPosition:
    return ClientPosition(place.line, place.character)


def _summary(model: dict[str, Any]) -> str:
    size = f"{model['sizeBytes'] / 1e6:,.0f} MB" if model["sizeBytes"] else ""
    runs = model["runsWith"] and f"runs with {model['runsWith']}"
    return ", ".join(filter(None, (model["source"], model["family"], size, model["quantization"], runs)))


def make_app(settings: Settings, port: int, keys: PageKeys, connections: Connections) -> Starlette:
    """The application at this port of loopback; only its own page, with the key, may open the WebSocket."""
    own = tuple(f"http://{name}:{port}" for name in ("127.0.0.1", "localhost"))
    access = Access(keys.key, own)

    async def serve(websocket: WebSocket) -> None:
        await websocket.accept(SUBPROTOCOL)
        outbox = Outbox(websocket, partial(connections.abort, websocket.scope["client"]))

        def send(message: ToPage) -> None:
            outbox.send(encode(message))

        session = PageSession(settings, send)
        sending = asyncio.create_task(outbox.run())
        try:
            await session.connect()
            while (message := await websocket.receive())["type"] != "websocket.disconnect":
                try:
                    session.receive(decode(message.get("text") or ""))
                except BadInput as error:
                    send(PageFailed(str(error)))
        finally:
            sending.cancel()
            await asyncio.shield(session.close())  # the server may cancel this handler when it ends

    return Starlette(
        routes=[*page_routes("playground"), key_route(keys), WebSocketRoute("/playground/session", serve)],
        middleware=[
            Middleware(RefuseForeign, access=access),
            Middleware(RequireToken, access=access, admit=connections.admit, shares=LoopShares()),
        ],
        exception_handlers=HANDLERS,
    )

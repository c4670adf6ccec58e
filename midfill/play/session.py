"""One page's session: its documents, its connection to a core, and the answers to its messages."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from lsp_server.core.controlling import describe_cores
from lsp_server.core.dashboard import dashboard_url
from lsp_server.core.link import CoreLink, LinkStatus
from lsp_server.core.target import target_of
from lsp_server.editing.documents import Document, Position
from lsp_server.editing.positions import ClientPosition
from lsp_server.filters.cursor_context import Insertion
from lsp_server.models import models_of_this_machine
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.open_documents import Change
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.reasons import Reason
from lsp_server.suggesting.requests import PromptCost
from midfill.play.messages import (
    Cost,
    Edit,
    Excluded,
    Failed,
    FromPage,
    Link,
    LinkDashboard,
    ListModels,
    Model,
    Models,
    Move,
    Open,
    Place,
    Status,
    Suggest,
    Suggestions,
    ToPage,
    UseModel,
)
from protocol.errors import BadInput, MidfillError
from protocol.rendezvous import resolve_model, runtime_folder
from protocol.settings import Settings

_MOST_DOCUMENTS = 64
_SCHEME = "untitled:"  # the page's documents are no files


class PageSession:
    """As a language server has for its editor: an editing session, and the link to the core of one model."""

    def __init__(self, settings: Settings, send: Callable[[ToPage], None]) -> None:
        self._send = send
        self._link = CoreLink(self._core_changed)
        self._editing = EditingSession(self._link, settings, secrets.token_hex(4), self._tell_cost, self._tell_reason)
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
            case Edit():
                changes = [Change(one.text, (_client(one.start), _client(one.end))) for one in message.changes]
                self._editing.documents.change(_uri(message.name), message.version, changes)
            case Move():
                self._editing.look_ahead(*self._place(message.name, message.place))
            case Suggest():
                if message.invoked:
                    self._link.start_again()
                self._start(self._suggest(message), message.id)
            case ListModels():
                self._start(self._list_models())
            case UseModel():
                self._editing.configure(replace(self._editing.settings, model=message.model))
                self._start(self._use_chosen())
            case LinkDashboard():
                self._start(self._link_dashboard())

    def _open(self, message: Open) -> None:
        others = [uri for uri in self._editing.documents.uris if uri != _uri(message.name)]
        if len(others) >= _MOST_DOCUMENTS:
            raise BadInput(f"{len(others)} documents are open, the most of one page")
        self._editing.open(_uri(message.name), message.language, 0, message.text)

    def _place(self, name: str, place: Place) -> tuple[OpenDocument, Position]:
        opened = self._editing.documents[_uri(name)]
        return opened, self._editing.documents.codec.decode(opened.document, _client(place))

    async def _suggest(self, message: Suggest) -> None:
        opened, cursor = self._place(message.name, message.place)
        insertions = await self._editing.suggest(opened, Query(cursor, message.invoked))
        items = tuple((one.text, self._replaced_units(opened.document, cursor, one)) for one in insertions)
        self._editing.explainer.tell(opened)
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
            Model(model["name"], _summary(model), model["problem"], resolve_model(model["name"]) in cores)
            for model in await models_of_this_machine(settings)
            if model["here"]
        ]
        self._send(Models(tuple(found)))

    async def _use_chosen(self) -> None:
        await self.connect()
        self._link.start_again()

    async def _link_dashboard(self) -> None:
        if self._link.status.state == "stopped":
            raise BadInput("the core was stopped: request a suggestion by hand first")
        self._send(Link(await dashboard_url(self._editing.settings, once=True)))

    def _core_changed(self, status: LinkStatus) -> None:
        core = status.core
        device, detail, progress = (core.device, core.detail, core.progress) if core else ("", "", None)
        message = str(status.error) if status.error else "; ".join(filter(None, (detail, status.note)))
        self._send(Status(status.state, self._editing.settings.model, device, message, progress))
        self._editing.core_changed(status)

    def _tell_cost(self, cost: PromptCost) -> None:
        self._send(Cost(cost.ahead, cost.source, cost.heat, cost.milliseconds, cost.usage))

    def _tell_reason(self, uri: str, reason: Reason | None) -> None:
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
            self._send(Failed(str(error), request_id))


def _uri(name: str) -> str:
    return _SCHEME + name


def _client(place: Place) -> ClientPosition:
    return ClientPosition(place.line, place.character)


def _summary(model: dict[str, Any]) -> str:
    size = f"{model['sizeBytes'] / 1e6:,.0f} MB" if model["sizeBytes"] else ""
    return ", ".join(filter(None, (model["source"], model["family"], size, model["quantization"])))

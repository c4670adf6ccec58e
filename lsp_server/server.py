"""The language server of one client: wires its components and applies its settings."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lsp_server.context.index.keeper import IndexKeeper
from lsp_server.context.proposals import INDEXED
from lsp_server.core_client.link import CoreLink, LinkStatus, same_core, target_of
from lsp_server.core_client.waiting import WaitingCore
from lsp_server.documents.documents import Replacement
from lsp_server.editor_protocol import EditorProtocol, log_error, make_converter
from lsp_server.notices import Notices
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.next_edits import NextEdits, Outcome, chosen_model
from lsp_server.suggesting.open_documents import OpenDocument, enabled_sources
from lsp_server.suggesting.requests import LONGEST_PREFILL_MS, PromptCost
from lsp_server.usage.acceptance import Acceptances
from lsp_server.usage.statistics import CACHE_OUTCOMES, NEXT_EDITS, Recorder, statistics_file
from protocol.errors import BadInput
from protocol.settings import LOCAL_ENGINE, Settings
from protocol.settings_sources import is_for_us, with_json

if TYPE_CHECKING:
    from pygls.server import ServerErrors


logger = logging.getLogger(__name__)


# The wait after a change of the core's settings: the user may still be typing a model's name.
SETTLE_S = 2.0
_NEXT_EDIT_SETTINGS = ("next_edit_model", "next_edit_engine")

_ALL_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])


class MidfillServer(LanguageServer):
    """Owns the components, and passes changed settings on to them."""

    protocol: EditorProtocol

    def __init__(self, settings: Settings, waiting: WaitingCore | None = None) -> None:
        """`waiting` becomes the first core that is started."""
        super().__init__(
            "midfill",
            metadata.version("midfill"),
            protocol_cls=EditorProtocol,
            converter_factory=make_converter,
            notebook_document_sync=_ALL_NOTEBOOKS,
        )
        self._initial_settings = settings
        self.client_name = "another editor"  # as other clients of the core know this one
        self.notices = Notices(self.protocol.notify, self.window_show_message, self.work_done_progress)
        self.link = CoreLink(self._core_changed, self._prefilled)
        self._waiting = waiting or WaitingCore()
        self.session = EditingSession(
            self.link,
            settings,
            secrets.token_hex(4),
            self._send_cost,
            self.notices.reason,
            self.notices.refresh,
            LONGEST_PREFILL_MS,
        )
        self.session.documents.on_change = self._changed
        self.next_edit_link = CoreLink(self._next_edit_core_changed)
        self.next_edits = NextEdits(
            self.next_edit_link,
            f"{secrets.token_hex(4)}-next",
            self.session.documents,
            self.session.explainer,
            self._count_next_edit,
            lambda fault: self.notices.warning(f"no next edits: {fault}"),
        )
        self.index = IndexKeeper()
        self.recorder = Recorder(statistics_file(), self._model)
        self._unsent: list[Callable[[], None]] = []  # reports of costs, kept until their answers have left
        self._connecting: asyncio.Task[None] | None = None
        self.acceptances = Acceptances(self.recorder)
        self._connected_by: Settings | None = None  # None before `initialized`
        self._began = time.time()
        self._settling: asyncio.TimerHandle | None = None

    async def connect(self) -> None:
        """Find or start the core for the present settings, and leave the previous one."""
        self._connected_by = self.session.settings
        self.keep_index()
        if self._connected_by.core or self._connected_by.engine != LOCAL_ENGINE:
            self._waiting.close()  # others need no torch
        await self.link.connect_to(target_of(self._connected_by, self._began, self._waiting.spawn))
        await self._connect_next_edits(self._connected_by)

    async def _connect_next_edits(self, settings: Settings) -> None:
        """Find or start the core of the model of next edits, if the settings name one."""
        try:
            chosen = chosen_model(settings)
        except BadInput as error:
            self.notices.error(f"nextEditModel: {error}")
            chosen = None
        self.next_edits.use(chosen[0] if chosen else None)
        if chosen is None:
            await self.next_edit_link.stop()
        else:
            await self.next_edit_link.connect_to(target_of(chosen[1], self._began))

    def keep_index(self) -> None:
        """Keep the index of the present folders, as the present settings want it; nothing before `initialized`."""
        if self._connected_by is not None:
            enabled = not INDEXED.isdisjoint(enabled_sources(self.session.settings))
            self.index.use(self.session.documents.folders, enabled=enabled)

    async def leave(self) -> None:
        """Save the statistics and disconnect from the core, which keeps running; the client has disconnected."""
        if self._settling is not None:
            self._settling.cancel()
        self.save_statistics()
        await self.index.close()
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        await self.link.stop()
        await self.next_edit_link.stop()

    def save_statistics(self) -> None:
        """Count what is left of accepted text, and write all counts."""
        self.acceptances.close()
        self.recorder.close()

    def take_initial_settings(self, given: object) -> None:
        """Lay the client's settings over the command line's; a bad one raises BadSettings, and none is taken."""
        self._initial_settings = self._laid_over(self._initial_settings, given)
        self._apply(self._initial_settings)

    def take_changed_settings(self, given: object) -> None:
        """Lay changed settings over the initial ones; a bad one raises BadSettings, and none is taken.

        Changes of only other programs' settings are ignored.
        """
        if not is_for_us(given):
            return
        self._apply(self._laid_over(self._initial_settings, given))
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._settle)

    def _settle(self) -> None:
        """Connect to another core if the settings now need one."""
        before, now = self._connected_by, self.session.settings
        if before is None:
            return
        if not same_core(before, now):
            self._connecting = asyncio.create_task(self.connect())
        elif any(getattr(before, name) != getattr(now, name) for name in _NEXT_EDIT_SETTINGS):
            self._connected_by = now
            self._connecting = asyncio.create_task(self._connect_next_edits(now))

    def request_resync(self, uri: str, reason: str) -> None:
        """Request the whole text from the client, once, after a change of the document was lost."""
        try:
            self.session.documents.refuse_change(uri, reason)
        except BadInput as error:
            self.notices.out_of_step(uri, str(error))

    def report_server_error(self, error: Exception, source: ServerErrors) -> None:
        """Only log the error: popups are for messages that the user can act on."""
        log_error(error, source)

    def _laid_over(self, base: Settings, given: object) -> Settings:
        settings, unknown = with_json(base, given)
        for error in unknown:
            self.notices.warning(str(error))
        return settings

    def follow_up(self, opened: OpenDocument, _answered: object = None) -> None:
        """Send the costs of answers, and why there was none; after the answers, so that the user does not wait."""
        unsent, self._unsent = self._unsent, []
        for send in unsent:
            send()
        self.session.explainer.report(opened)

    def _apply(self, settings: Settings) -> None:
        self.session.configure(settings)
        self.keep_index()
        self.recorder.enabled = settings.statistics
        logging.getLogger("lsp_server").setLevel(settings.log_level.upper())

    def _changed(self, opened: OpenDocument, replacements: Sequence[Replacement]) -> None:
        if self.session.settings.statistics:
            self.acceptances.on_edit(opened, replacements)
        self.next_edits.changed(opened, replacements)

    def _next_edit_core_changed(self, status: LinkStatus) -> None:
        if status.state == "failed":
            self.notices.warning(f"no next edits: {status.message or 'the core failed'}")

    def _count_next_edit(self, opened: OpenDocument, outcome: Outcome) -> None:
        core = self.next_edit_link.status.core
        model = core.model if core is not None else self.session.settings.next_edit_model
        group = self.recorder.bucket(opened.document.language_id)._replace(model=model)
        self.recorder.count(group, NEXT_EDITS[outcome])

    def _core_changed(self, status: LinkStatus) -> None:
        if status.state != "starting":
            self._waiting.close()
        self.notices.core_status(status)
        self.session.core_changed(status)

    def _prefilled(self, session: str, tokens: tuple[int, int] | None) -> None:
        _, _, uri = session.partition("/")  # a session is named `client/document`
        self.notices.prefill(uri, tokens)
        self.session.prefilled(uri, tokens)

    def _model(self) -> str:
        core = self.link.status.core
        return core.model if core is not None else self.session.settings.model

    def _send_cost(self, cost: PromptCost) -> None:
        documents = self.session.documents
        if cost.source == "core" and not cost.is_prefetch:
            group = self.recorder.bucket(documents[cost.uri].document.language_id)
            self.recorder.count(group, CACHE_OUTCOMES[cost.cache_outcome])
        cursor = documents.codec.encode(documents[cost.uri].document, cost.cursor)
        send = functools.partial(self.notices.cost, cost, cursor)
        if cost.is_prefetch:
            send()
        else:
            self._unsent.append(send)

"""The language server of one client: wires its components and applies its settings."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import time
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lsp_server.context.index.keeper import IndexKeeper
from lsp_server.context.proposals import INDEXED
from lsp_server.core.link import CoreLink, LinkStatus
from lsp_server.core.target import same_core, target_of
from lsp_server.editor_protocol import EditorProtocol, make_converter
from lsp_server.mistakes import log_error
from lsp_server.notices import Notices
from lsp_server.prompts.surroundings import enabled_sources
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.requests import PromptCost
from lsp_server.usage.acceptance import Acceptances
from lsp_server.usage.database import statistics_file
from lsp_server.usage.recorder import Recorder
from lsp_server.usage.statistics import HEATS
from protocol.errors import BadInput
from protocol.settings import Settings
from protocol.settings_sources import is_for_us, with_json

if TYPE_CHECKING:
    from pygls.server import ServerErrors


# The wait after a change of the core's settings: the user may still be typing a model's name.
SETTLE_S = 2.0

_ALL_NOTEBOOKS = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])


class MidfillServer(LanguageServer):
    """Owns the components, and passes changed settings on to them."""

    protocol: EditorProtocol

    def __init__(self, settings: Settings) -> None:
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
        self.session = EditingSession(
            self.link, settings, secrets.token_hex(4), self._send_cost, self.notices.reason, self.notices.refresh
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
        await self.link.connect_to(target_of(self._connected_by, self._began))

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
        if self._connected_by is not None and not same_core(self._connected_by, self.session.settings):
            self._connecting = asyncio.create_task(self.connect())

    def lose_step(self, uri: str, reason: str) -> None:
        """Request the whole text from the client, once, after a change of the document was lost."""
        try:
            self.session.documents.refuse_change(uri, reason)
        except BadInput as error:
            self.notices.lost_step(uri, str(error))

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
        self.session.explainer.tell(opened)

    def _apply(self, settings: Settings) -> None:
        self.session.configure(settings)
        self.keep_index()
        self.recorder.enabled = settings.statistics
        self.session.documents.on_change = self.acceptances.changed if settings.statistics else lambda *_: None
        logging.getLogger("lsp_server").setLevel(settings.log_level.upper())

    def _core_changed(self, status: LinkStatus) -> None:
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
        if cost.source == "core" and not cost.ahead:
            group = self.recorder.group(documents[cost.uri].document.language_id)
            self.recorder.count(group, HEATS[cost.heat])
        cursor = documents.codec.encode(documents[cost.uri].document, cost.cursor)
        send = functools.partial(self.notices.cost, cost, cursor)
        if cost.ahead:
            send()
        else:
            self._unsent.append(send)

"""The language server of one client: every collaborator, wired here."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from importlib import metadata
from typing import TYPE_CHECKING

from pygls.lsp.server import LanguageServer

from lsp_server import core_commands, features, feedback, notebook_features
from lsp_server.acceptance import Acceptances
from lsp_server.asking import Cost
from lsp_server.core_link import CoreLink, LinkStatus
from lsp_server.core_target import same_core, target_of
from lsp_server.editor_protocol import EditorProtocol, make_converter
from lsp_server.mistakes import log_error
from lsp_server.notices import Notices
from lsp_server.open_documents import OpenDocuments
from lsp_server.recorder import Recorder
from lsp_server.statistics import statistics_file
from lsp_server.suggesting import Suggester
from protocol.settings import Settings
from protocol.settings_sources import with_json

if TYPE_CHECKING:
    from pygls.server import ServerErrors


# After a change of the core's settings: a model's name that is being typed is no model.
SETTLE_S = 2.0


class MidfillServer(LanguageServer):
    """Owns the collaborators, and the settings that they work by."""

    protocol: EditorProtocol

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            "midfill",
            metadata.version("midfill"),
            protocol_cls=EditorProtocol,
            converter_factory=make_converter,
            notebook_document_sync=notebook_features.SYNC,
        )
        self._initial_settings = self.settings = settings
        self.notices = Notices(self)
        self.documents = OpenDocuments(settings)
        self.link = CoreLink(self._core_changed)
        self.suggester = Suggester(
            self.link, settings, secrets.token_hex(4), self._tell_cost, on_excluded=self.notices.excluded
        )
        self.recorder = Recorder(statistics_file())
        self.acceptances = Acceptances(self.recorder.count)
        features.register(self)
        feedback.register(self)
        core_commands.register(self)
        notebook_features.register(self)
        self._connected_by: Settings | None = None  # None before `initialized`
        self._settling: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Find or start the core that the settings ask for, in place of the present one."""
        self._connected_by = self.settings
        await self.link.connect_to(target_of(self.settings))

    async def leave(self) -> None:
        """The client is gone: save what was counted, and let go of the core, which goes on."""
        if self._settling is not None:
            self._settling.cancel()
        try:
            await self.recorder.close()
        finally:
            if self._connecting is not None:
                await asyncio.wait([self._connecting])
            await self.link.stop()

    def take_initial_settings(self, given: object) -> None:
        """Lay the client's settings over those of the command line; BadSettings, and none taken, for a bad one."""
        self._initial_settings = with_json(self._initial_settings, given)
        self._apply(self._initial_settings)

    def take_changed_settings(self, given: object) -> None:
        """Lay changed settings over the initial ones; BadSettings, and none taken, for a bad one."""
        self._apply(with_json(self._initial_settings, given))
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._settle)

    def _settle(self) -> None:
        """Connect to another core if that is what the settings ask for now."""
        if self._connected_by is not None and not same_core(self._connected_by, self.settings):
            self._connecting = asyncio.create_task(self.connect())

    def report_server_error(self, error: Exception, source: ServerErrors) -> None:
        """Log it, and nothing more: popups are for what the user can act on."""
        log_error(error, source)

    def _apply(self, settings: Settings) -> None:
        self.settings = settings
        self.suggester.settings = settings
        self.recorder.enabled = settings.statistics
        self.documents.configure(settings)
        logging.getLogger("lsp_server").setLevel(settings.log_level.upper())

    def _core_changed(self, status: LinkStatus) -> None:
        self.notices.core_status(status)
        self.suggester.core_changed(status.state)

    def _tell_cost(self, cost: Cost) -> None:
        document = self.documents[cost.uri].document
        tell = functools.partial(self.notices.cost, cost, self.documents.codec.encode(document, cost.cursor))
        if cost.ahead:
            tell()
        else:
            self.protocol.after_answer(tell)

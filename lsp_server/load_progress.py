"""The progress that clients show while the core starts and loads its model."""

from __future__ import annotations

import asyncio
import logging
import uuid

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

from lsp_server.core.link import LinkStatus

logger = logging.getLogger(__name__)

# The delay shows no progress for a core that is already running.
_DELAY_S = 0.5


class LoadProgress:
    """One progress at a time, while the core starts or loads."""

    def __init__(self, progress: Progress) -> None:
        self.enabled = False
        self._progress = progress
        self._status = LinkStatus("stopped")
        self._changed = asyncio.Event()
        self._shown: asyncio.Task[None] | None = None

    def update(self, status: LinkStatus) -> None:
        """Show, update or end the progress."""
        self._status = status
        self._changed.set()
        if self.enabled and self._shown is None and self._working:
            self._shown = asyncio.create_task(self._show())

    @property
    def _working(self) -> bool:
        return self._status.state in ("starting", "loading")

    async def _show(self) -> None:
        try:
            await asyncio.sleep(_DELAY_S)
            if self._working:
                await self._run(str(uuid.uuid4()))
        except JsonRpcException as error:
            logger.info("the client cannot show progress: %s", error)
        finally:
            self._shown = None

    async def _run(self, token: str) -> None:
        await self._progress.create_async(token)
        self._progress.begin(token, types.WorkDoneProgressBegin(title="midfill", percentage=self._percentage))
        while self._working:
            report = types.WorkDoneProgressReport(message=self._message, percentage=self._percentage)
            self._progress.report(token, report)
            self._changed.clear()
            await self._changed.wait()
        self._progress.end(token, types.WorkDoneProgressEnd())

    @property
    def _message(self) -> str:
        core = self._status.core
        return (core.detail or f"loading {core.model}") if core else "starting the core"

    @property
    def _percentage(self) -> int | None:
        core = self._status.core
        return round(core.progress * 100) if core and core.progress is not None else None

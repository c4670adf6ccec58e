"""The progress that clients show while the core starts or loads, and while it prefills a document's prompt."""

from __future__ import annotations

import asyncio
import logging
import uuid
from abc import ABC, abstractmethod
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

from lsp_server.core.link import LinkStatus

logger = logging.getLogger(__name__)

# The delay shows no progress for a core that is already running.
_DELAY_S = 0.5
# A prefill that the core has not mentioned for so long was cancelled, and no newer request continues it.
_SILENCE_S = 3.0


class _ShownProgress(ABC):
    """One progress at a time, which a task shows, updates and ends."""

    def __init__(self, progress: Progress, delay_s: float = 0.0) -> None:
        self.enabled = False
        self._progress = progress
        self._delay_s = delay_s
        self._changed = asyncio.Event()
        self._shown: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def _is_due(self) -> bool: ...

    @property
    @abstractmethod
    def _message(self) -> str: ...

    @property
    @abstractmethod
    def _percentage(self) -> int | None: ...

    def _change(self) -> None:
        """Show, update or end the progress, as the properties are now."""
        self._changed.set()
        if self.enabled and self._shown is None and self._is_due:
            self._shown = asyncio.create_task(self._show())

    async def _next_change(self) -> None:
        """Wait for it; TimeoutError if none is to be expected any more."""
        await self._changed.wait()

    async def _show(self) -> None:
        try:
            await asyncio.sleep(self._delay_s)
            if self._is_due:
                await self._run(str(uuid.uuid4()))
        except JsonRpcException as error:
            logger.info("the client shows no progress: %s", error)
        finally:
            self._shown = None

    async def _run(self, token: str) -> None:
        await self._progress.create_async(token)
        begin = types.WorkDoneProgressBegin(title="midfill", message=self._message, percentage=self._percentage)
        self._progress.begin(token, begin)
        while self._is_due:
            report = types.WorkDoneProgressReport(message=self._message, percentage=self._percentage)
            self._progress.report(token, report)
            self._changed.clear()
            try:
                await self._next_change()
            except TimeoutError:
                break
        self._progress.end(token, types.WorkDoneProgressEnd())


class LoadProgress(_ShownProgress):
    """Shown while the core starts or loads its model."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress, _DELAY_S)
        self._status = LinkStatus("stopped")

    def update(self, status: LinkStatus) -> None:
        """Show, update or end the progress."""
        self._status = status
        self._change()

    @property
    def _is_due(self) -> bool:
        return self._status.state in ("starting", "loading")

    @property
    def _message(self) -> str:
        core = self._status.core
        return (core.detail or f"loading {core.model}") if core else "starting the core"

    @property
    def _percentage(self) -> int | None:
        core = self._status.core
        return round(core.progress * 100) if core and core.progress is not None else None


class PrefillProgress(_ShownProgress):
    """Shown for the document that the core spoke of last. The core speaks only of long prefills."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self._uri = ""
        self._share: float | None = None

    def update(self, uri: str, share: float | None) -> None:
        """Show how much of the document's prompt is resident (0..1); None ends the progress of this document."""
        if share is None and uri != self._uri:
            return
        self._uri, self._share = uri, share
        self._change()

    async def _next_change(self) -> None:
        async with asyncio.timeout(_SILENCE_S):
            await self._changed.wait()

    @property
    def _is_due(self) -> bool:
        return self._share is not None

    @property
    def _message(self) -> str:
        return f"reading {unquote(PurePosixPath(urlsplit(self._uri).path).name)}"

    @property
    def _percentage(self) -> int:
        return round((self._share or 0) * 100)

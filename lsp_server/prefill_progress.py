"""The progress that clients show while the core prefills a document's prompt: until then there are no suggestions."""

from __future__ import annotations

import asyncio
import logging
import uuid
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

logger = logging.getLogger(__name__)

# A prefill that the core has not mentioned for so long was cancelled, and no newer request continues it.
_SILENCE_S = 3.0


class PrefillProgress:
    """One progress at a time, of the document that the core spoke of last. The core speaks only of long prefills."""

    def __init__(self, progress: Progress) -> None:
        self.enabled = False
        self._progress = progress
        self._uri = ""
        self._share: float | None = None
        self._changed = asyncio.Event()
        self._shown: asyncio.Task[None] | None = None

    def update(self, uri: str, share: float | None) -> None:
        """Show how much of the document's prompt is resident (0..1); None ends the progress of this document."""
        if share is None and uri != self._uri:
            return
        self._uri, self._share = uri, share
        self._changed.set()
        if self.enabled and self._shown is None and share is not None:
            self._shown = asyncio.create_task(self._show())

    async def _show(self) -> None:
        try:
            await self._run(str(uuid.uuid4()))
        except JsonRpcException as error:
            logger.info("the client shows no progress: %s", error)
        finally:
            self._shown = None

    async def _run(self, token: str) -> None:
        await self._progress.create_async(token)
        begin = types.WorkDoneProgressBegin(title="midfill", message=self._message, percentage=self._percentage)
        self._progress.begin(token, begin)
        while self._share is not None:
            report = types.WorkDoneProgressReport(message=self._message, percentage=self._percentage)
            self._progress.report(token, report)
            self._changed.clear()
            try:
                async with asyncio.timeout(_SILENCE_S):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._progress.end(token, types.WorkDoneProgressEnd())

    @property
    def _message(self) -> str:
        return f"reading {unquote(PurePosixPath(urlsplit(self._uri).path).name)}"

    @property
    def _percentage(self) -> int:
        return round((self._share or 0) * 100)

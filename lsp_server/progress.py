"""The progress that clients show while the core starts or loads, and while it prefills a document's prompt."""

from __future__ import annotations

import asyncio
import logging
import uuid

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

logger = logging.getLogger(__name__)


class ShownProgress:
    """One progress at a time, which a task shows while there is a message, updates and ends."""

    def __init__(self, progress: Progress, delay_s: float = 0.0, silence_s: float | None = None) -> None:
        """Show nothing within `delay_s`, and end the progress if nothing has updated it for `silence_s`."""
        self.enabled = False
        self._progress = progress
        self._delay_s = delay_s
        self._silence_s = silence_s
        self._message: str | None = None
        self._percentage: int | None = None
        self._changed = asyncio.Event()
        self._shown: asyncio.Task[None] | None = None

    def update(self, message: str | None, share: float | None = None) -> None:
        """Show the message and the share (0..1) that is done; None ends the progress."""
        self._message, self._percentage = message, None if share is None else round(share * 100)
        self._changed.set()
        if self.enabled and self._shown is None and message is not None:
            self._shown = asyncio.create_task(self._show())

    async def _show(self) -> None:
        try:
            await asyncio.sleep(self._delay_s)
            if self._message is not None:
                await self._run(str(uuid.uuid4()))
        except JsonRpcException as error:
            logger.info("the client shows no progress: %s", error)
        finally:
            self._shown = None

    async def _run(self, token: str) -> None:
        await self._progress.create_async(token)
        begin = types.WorkDoneProgressBegin(title="midfill", message=self._message, percentage=self._percentage)
        self._progress.begin(token, begin)
        while self._message is not None:
            report = types.WorkDoneProgressReport(message=self._message, percentage=self._percentage)
            self._progress.report(token, report)
            self._changed.clear()
            try:
                async with asyncio.timeout(self._silence_s):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._progress.end(token, types.WorkDoneProgressEnd())

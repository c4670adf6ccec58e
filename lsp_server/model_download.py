"""Downloads a model for an editor, by `midfill models download` in a process of its own, with progress and cancel."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import uuid
from contextlib import suppress
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

from protocol.errors import MidfillError
from protocol.sizes import megabytes

logger = logging.getLogger(__name__)


async def download_model(name: str, progress: Progress | None) -> dict[str, Any]:
    """Download the model; the user may cancel it by `progress`, which is None for a client that shows none.

    Returns `{"path"}`, `{"choices": [{"name", "sizeBytes"}]}` for a repository with several quantizations, none of
    which was named, or `{"cancelled": true}`: what has arrived is kept. MidfillError, with the reason, if it fails.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "midfill", "models", "download", "--json", "--", name),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    shown = _Shown(name, progress)
    result: dict[str, Any] = {}
    try:
        await shown.begin(process)
        async for line in process.stdout:
            result = json.loads(line)
            shown.report(result)
        await process.wait()
    finally:
        shown.end()
        if process.returncode is None:
            _end(process)
            await process.wait()
    if shown.cancelled:
        return {"cancelled": True}
    if process.returncode != 0:
        last = (await errors).decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise MidfillError(last.removeprefix("midfill: ") or f"the download ended with status {process.returncode}")
    return result


class _Shown:
    """The progress that the client shows of one download."""

    def __init__(self, name: str, progress: Progress | None) -> None:
        self._name = name
        self._progress = progress
        self._token = str(uuid.uuid4())

    @property
    def cancelled(self) -> bool:
        """Whether the user has cancelled it."""
        future = self._progress.tokens.get(self._token) if self._progress else None
        return future is not None and future.cancelled()

    async def begin(self, process: asyncio.subprocess.Process) -> None:
        """Show the progress; a cancellation ends the process."""
        if self._progress is None:
            return
        try:
            await self._progress.create_async(self._token)
        except JsonRpcException as error:
            logger.info("the client shows no progress: %s", error)
            self._progress = None
            return
        title = f"midfill: downloading {self._name}"
        self._progress.begin(self._token, types.WorkDoneProgressBegin(title=title, percentage=0, cancellable=True))
        self._progress.tokens[self._token].add_done_callback(lambda _: _end(process))

    def report(self, line: dict[str, Any]) -> None:
        """Show how much has arrived, of a line with "done" and "total"."""
        if self._progress is not None and line.get("total"):
            message = f"{megabytes(line['done'])} of {megabytes(line['total'])}"
            share = types.WorkDoneProgressReport(
                message=message, percentage=100 * line["done"] // line["total"], cancellable=True
            )
            self._progress.report(self._token, share)

    def end(self) -> None:
        """End the progress."""
        if self._progress is not None and self._token in self._progress.tokens:
            self._progress.end(self._token, types.WorkDoneProgressEnd())


def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        process.terminate()

"""Lists the models on this machine and downloads others, for an editor, by `inference.loading` in its own process.

The language server loads no library that reads or fetches models.
"""

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
from protocol.messages import megabytes
from protocol.settings import Settings, chosen_settings

logger = logging.getLogger(__name__)

_PATIENCE_S = 60.0
_ASKED_WITH = ("device", "dtype", "weights", "context_tokens")


async def models_of_this_machine(settings: Settings, patience_s: float = _PATIENCE_S) -> list[dict[str, Any]]:
    """What `midfill models --json` prints; MidfillError, with the reason, if it fails or takes too long."""
    process = await _start("list", json.dumps(chosen_settings(settings, _ASKED_WITH)))
    try:
        async with asyncio.timeout(patience_s):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise MidfillError(f"`midfill models` gave no list within {patience_s:.0f} s") from error
    finally:
        await _end(process)
    if process.returncode != 0:
        raise MidfillError(f"`midfill models` failed: {_last_line(errors) or f'status {process.returncode}'}")
    try:
        models = json.loads(output)
    except ValueError as error:
        raise MidfillError(f"`midfill models` printed no list: {error}") from error
    assert isinstance(models, list)
    return models


async def download_model(name: str, progress: Progress | None) -> dict[str, Any]:
    """Download the model; the user may cancel it by `progress`, which is None for a client that shows none.

    Returns `{"path"}`, `{"choices": [{"name", "sizeBytes"}]}` for a repository with several quantizations, none of
    which was named, or `{"cancelled": true}`: what has arrived is kept. MidfillError, with the reason, if it fails.
    """
    process = await _start("download", name)
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
        await _end(process)
    if shown.cancelled:
        return {"cancelled": True}
    if process.returncode != 0:
        reason = _last_line(await errors).removeprefix("midfill: ")
        raise MidfillError(reason or f"the download ended with status {process.returncode}")
    return result


async def _start(*options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "inference.loading", *options),  # -P: not the user's project's modules
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        _terminate(process)
        await process.wait()


def _terminate(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        process.terminate()


def _last_line(errors: bytes) -> str:
    return errors.decode("utf-8", "replace").strip().rpartition("\n")[2]


class _Shown:
    """The progress that the client shows of one download."""

    def __init__(self, name: str, progress: Progress | None) -> None:
        self._name = name
        self._progress = progress
        self._token = str(uuid.uuid4())

    @property
    def cancelled(self) -> bool:
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
        self._progress.tokens[self._token].add_done_callback(lambda _: _terminate(process))

    def report(self, line: dict[str, Any]) -> None:
        """Show how much has arrived, of a line with "done" and "total"."""
        if self._progress is not None and line.get("total"):
            message = f"{megabytes(line['done'])} of {megabytes(line['total'])}"
            share = types.WorkDoneProgressReport(
                message=message, percentage=100 * line["done"] // line["total"], cancellable=True
            )
            self._progress.report(self._token, share)

    def end(self) -> None:
        if self._progress is not None and self._token in self._progress.tokens:
            self._progress.end(self._token, types.WorkDoneProgressEnd())

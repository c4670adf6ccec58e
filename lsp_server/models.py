"""Lists the models on this machine and downloads others, for an editor, by `inference.loading` in its own process.

The language server loads no library that reads or fetches models.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from pygls.progress import Progress

from lsp_server.notices import ShownProgress
from protocol.errors import MidfillError
from protocol.messages import megabytes
from protocol.settings import Settings, chosen_settings

_PATIENCE_S = 60.0
_ASKED_WITH = ("device", "dtype", "weights", "context_tokens")


async def models_of_this_machine(settings: Settings, patience_s: float = _PATIENCE_S) -> list[dict[str, Any]]:
    """The output of `midfill models --json`; MidfillError, with the reason, if it fails or takes too long."""
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


async def download_model(name: str, progress: Progress, *, shows_progress: bool) -> dict[str, Any]:
    """Download the model; the user may cancel it where the client shows the progress.

    Returns `{"path"}`, `{"choices": [{"name", "sizeBytes"}]}` for a repository with several quantizations, none of
    which was named, or `{"cancelled": true}`: what has arrived is kept. MidfillError, with the reason, if it fails.
    """
    process = await _start("download", name)
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    cancelled = asyncio.Event()

    def cancel() -> None:
        cancelled.set()
        _terminate(process)

    shown = ShownProgress(progress, title=f"midfill: downloading {name}", enabled=shows_progress, on_cancel=cancel)
    result: dict[str, Any] = {}
    try:
        shown.update("", 0.0)
        async for line in process.stdout:
            result = json.loads(line)
            if total := result.get("total"):
                shown.update(f"{megabytes(result['done'])} of {megabytes(total)}", result["done"] / total)
        await process.wait()
    finally:
        shown.update(None)
        await _end(process)
    if cancelled.is_set():
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

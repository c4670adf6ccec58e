"""Lists the models on this machine for an editor, by the command `midfill models` in a process of its own.

The language server loads no library that reads models.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from protocol.errors import MidfillError
from protocol.settings import Settings, option_name

_PATIENCE_S = 60.0
_ASKED_WITH = ("device", "dtype", "weights", "context_tokens")


async def models_of_this_machine(settings: Settings, patience_s: float = _PATIENCE_S) -> list[dict[str, Any]]:
    """What `midfill models --json` prints; MidfillError, with the reason, if it fails or takes too long."""
    options = [part for name in _ASKED_WITH for part in (option_name(name), str(getattr(settings, name)))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "midfill", "models", "--json", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(patience_s):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise MidfillError(f"`midfill models` gave no list within {patience_s:.0f} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                process.kill()
            await process.wait()
    if process.returncode != 0:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise MidfillError(f"`midfill models` failed: {last or f'status {process.returncode}'}")
    try:
        models = json.loads(output)
    except ValueError as error:
        raise MidfillError(f"`midfill models` printed no list: {error}") from error
    assert isinstance(models, list)
    return models

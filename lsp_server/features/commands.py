"""Handlers of the editor's commands: on cores and models, and on why nothing is suggested.

A command that fails answers the request with the error RequestFailed, which the client shows.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from lsp_server.core_client.control import describe_cores, entry, freed
from lsp_server.core_client.link import local_core
from lsp_server.core_client.processes import end_core, stop_core
from lsp_server.custom_messages import (
    DID_SWITCH,
    DOWNLOAD_COMMAND,
    FREE_COMMAND,
    LIST_COMMAND,
    LIST_MODELS_COMMAND,
    REASON_REQUEST,
    STOP_COMMAND,
    UNLOAD_COMMAND,
    DocumentParams,
    SwitchParams,
)
from lsp_server.editor_protocol import RequestFailed, refusing_bad_input
from lsp_server.models import download_model, models_of_this_machine
from lsp_server.notices import reason_json
from lsp_server.server import MidfillServer
from lsp_server.suggesting.reasons import (
    RESTART_COMMAND,
    RESUME_COMMAND,
    SNOOZE_COMMAND,
    SUGGEST_HERE_COMMAND,
    SUGGEST_NOW_COMMAND,
)
from protocol.errors import BadInput, MidfillError
from protocol.rendezvous import end_stop, runtime_folder


def register(server: MidfillServer) -> None:
    """Register these commands and messages with the server."""
    server.command(RESTART_COMMAND)(restart_core)
    server.command(STOP_COMMAND)(stop)
    server.command(UNLOAD_COMMAND)(unload_model)
    server.command(FREE_COMMAND)(free_memory)
    server.command(LIST_COMMAND)(list_cores)
    server.command(LIST_MODELS_COMMAND)(list_models)
    server.command(DOWNLOAD_COMMAND)(download)
    server.command(SNOOZE_COMMAND)(snooze)
    server.command(RESUME_COMMAND)(resume)
    server.command(SUGGEST_HERE_COMMAND)(suggest_here)
    server.command(SUGGEST_NOW_COMMAND)(suggest_now)
    server.feature(DID_SWITCH)(did_switch)
    server.feature(REASON_REQUEST)(last_reason)


async def restart_core(ls: MidfillServer) -> None:
    """Replace the core of this machine by a new process; reconnect to a core on another machine."""
    await ls.link.stop()
    if not ls.session.settings.core:
        await _end(ls, _restart)
    await ls.connect()


async def stop(ls: MidfillServer) -> None:
    """End the core of this machine; no client starts another until the user wants one."""
    if ls.session.settings.core:
        raise RequestFailed(f"the core at {ls.session.settings.core} is on another machine: run `midfill core stop` there")
    await ls.link.stop()
    await _end(ls, partial(stop_core, by=ls.client_name))
    await ls.connect()


async def unload_model(ls: MidfillServer) -> None:
    """Tell the core to free its model's memory."""
    try:
        ls.link.client.unload()
    except MidfillError as error:
        raise RequestFailed(str(error)) from error


async def free_memory(ls: MidfillServer, disk: bool) -> str:
    """Make the core drop its resident KV, with `disk` also what is saved."""
    try:
        client = ls.link.client
        return freed(await client.memory(), await client.free(disk=disk), disk=disk)
    except MidfillError as error:
        raise RequestFailed(str(error)) from error


async def list_cores(ls: MidfillServer) -> list[dict[str, Any]]:
    """The cores of this machine, and the one of another machine that is in use."""
    try:
        cores = await describe_cores(runtime_folder())
        status = ls.link.status
        memory = await ls.link.client.memory() if status.core and ls.session.settings.core else None
    except MidfillError as error:
        raise RequestFailed(str(error)) from error
    if remote := ls.session.settings.core:
        model, detail = (status.core.model, status.core.detail) if status.core else (remote, str(status.error or ""))
        cores.insert(0, entry(model, status.state, detail, remote, memory))
    return cores


async def list_models(ls: MidfillServer) -> list[dict[str, Any]]:
    """The models on this machine, for the user to choose from."""
    settings = ls.session.settings
    if settings.core:
        raise RequestFailed(f"the core at {settings.core} is on another machine: choose its model there")
    try:
        return await models_of_this_machine(settings)
    except (MidfillError, OSError) as error:
        raise RequestFailed(str(error)) from error


async def download(ls: MidfillServer, name: str) -> dict[str, Any]:
    """Download a model from the Hugging Face hub, which the user has chosen."""
    window = ls.client_capabilities.window
    try:
        shows = bool(window and window.work_done_progress)
        return await download_model(name, ls.work_done_progress, shows_progress=shows)
    except (MidfillError, OSError, ValueError) as error:
        raise RequestFailed(str(error)) from error


async def _restart(file: Path) -> None:
    await end_core(file, "restart")
    end_stop(file)


async def _end(ls: MidfillServer, end: Callable[[Path], Awaitable[object]]) -> None:
    """Call `end` with the core's address file; where that fails, connect as before and raise RequestFailed."""
    try:
        await end(local_core(ls.session.settings).file)
    except (MidfillError, OSError) as error:
        await ls.connect()
        raise RequestFailed(str(error)) from error


_MOST_MINUTES = 7 * 24 * 60


def did_switch(ls: MidfillServer, params: SwitchParams) -> None:
    """Record whether the client suggests in a document, and which other extensions do."""
    ls.session.explainer.rivals = tuple(params.rivals or ())
    ls.session.switch(ls.session.documents[params.textDocument.uri], params.off or "")


@refusing_bad_input
async def last_reason(ls: MidfillServer, params: DocumentParams) -> dict[str, Any] | None:
    """Return why the document gets no suggestion, or its last request got none; null if it did."""
    return reason_json(ls.session.explainer.reason(ls.session.documents[params.text_document.uri]))


def snooze(ls: MidfillServer, minutes: float) -> None:
    """Suggest nothing for so many minutes; 0 = until the server restarts."""
    if not 0 <= minutes <= _MOST_MINUTES:
        raise RequestFailed(f"minutes = {minutes!r}: expected 0 to {_MOST_MINUTES}")
    ls.session.snooze(minutes * 60 or math.inf)


def resume(ls: MidfillServer) -> None:
    """End the snooze."""
    ls.session.snooze(0)


def suggest_here(ls: MidfillServer, uri: str) -> None:
    """Let an excluded document into its own prompts until it is closed."""
    try:
        ls.session.allow(ls.session.documents[uri])
    except BadInput as error:
        raise RequestFailed(str(error)) from error


def suggest_now(ls: MidfillServer, uri: str) -> None:
    """Have the client request a suggestion explicitly, which shows an unlikely one too."""
    try:
        opened = ls.session.documents[uri]
    except BadInput as error:
        raise RequestFailed(str(error)) from error
    ls.notices.refresh(opened.document.uri, invoked=True)

"""The commands by which an editor controls the core: restart, stop, unload, list cores, list models.

A command that fails answers the request with the error RequestFailed, which the client shows.
"""

from __future__ import annotations

from typing import Any

from lsp_server.core.local_cores import describe_cores, end_core
from lsp_server.core.target import local_core, target_of
from lsp_server.custom_messages import (
    LIST_COMMAND,
    LIST_MODELS_COMMAND,
    RESTART_COMMAND,
    STOP_COMMAND,
    UNLOAD_COMMAND,
)
from lsp_server.mistakes import RequestFailed
from lsp_server.model_list import models_of_this_machine
from lsp_server.server import MidfillServer
from protocol.errors import MidfillError
from protocol.rendezvous import runtime_folder
from protocol.wire import StopHow


def register(server: MidfillServer) -> None:
    """Register these commands with the server."""
    server.command(RESTART_COMMAND)(restart_core)
    server.command(STOP_COMMAND)(stop_core)
    server.command(UNLOAD_COMMAND)(unload_model)
    server.command(LIST_COMMAND)(list_cores)
    server.command(LIST_MODELS_COMMAND)(list_models)


async def restart_core(ls: MidfillServer) -> None:
    """Replace the core of this machine by a new process; reconnect to a core on another machine."""
    await ls.link.stop()
    if not ls.session.settings.core:
        await _end(ls, "restart")
    await ls.connect()


async def stop_core(ls: MidfillServer) -> None:
    """End the core of this machine; no client starts another until the user restarts it."""
    if ls.session.settings.core:
        raise RequestFailed(
            f"the core at {ls.session.settings.core} is on another machine: run `midfill core stop` there"
        )
    await ls.link.stop()
    await _end(ls, "stop")
    await ls.link.connect_to(target_of(ls.session.settings), when_it_runs=True)


async def unload_model(ls: MidfillServer) -> None:
    """Tell the core to free its model's memory."""
    try:
        ls.link.unload()
    except MidfillError as error:
        raise RequestFailed(str(error)) from error


async def list_cores(ls: MidfillServer) -> list[dict[str, Any]]:  # noqa: ARG001 - pygls asks for the name
    """The cores of this machine."""
    return await describe_cores(runtime_folder())


async def list_models(ls: MidfillServer) -> list[dict[str, Any]]:
    """The models on this machine, for the user to choose from."""
    settings = ls.session.settings
    if settings.core:
        raise RequestFailed(f"the core at {settings.core} is on another machine: choose its model there")
    try:
        return await models_of_this_machine(settings)
    except (MidfillError, OSError) as error:
        raise RequestFailed(str(error)) from error


async def _end(ls: MidfillServer, how: StopHow) -> None:
    """End the core of this machine; where that fails, connect as before and raise RequestFailed."""
    try:
        await end_core(local_core(ls.session.settings).file, how)
    except (MidfillError, OSError) as error:
        await ls.connect()
        raise RequestFailed(str(error)) from error

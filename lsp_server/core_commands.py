"""The commands by which an editor controls the core: restart, stop, unload, list."""

from __future__ import annotations

from typing import Any

from lsp_server.core.local_cores import describe_cores, end_core
from lsp_server.core.target import local_core, target_of
from lsp_server.custom_messages import LIST_COMMAND, RESTART_COMMAND, STOP_COMMAND, UNLOAD_COMMAND
from lsp_server.server import MidfillServer
from protocol.errors import MidfillError
from protocol.rendezvous import runtime_folder
from protocol.wire import StopHow


def register(server: MidfillServer) -> None:
    """Teach the server these commands."""
    server.command(RESTART_COMMAND)(restart_core)
    server.command(STOP_COMMAND)(stop_core)
    server.command(UNLOAD_COMMAND)(unload_model)
    server.command(LIST_COMMAND)(list_cores)


async def restart_core(ls: MidfillServer) -> None:
    """Replace the core of this machine by a new process; connect again to a core on another one."""
    await _end(ls, "restart")
    await ls.connect()


async def stop_core(ls: MidfillServer) -> None:
    """End the core of this machine; no client starts another before it is told to."""
    await _end(ls, "stop")
    if not ls.session.settings.core:
        await ls.link.connect_to(target_of(ls.session.settings), when_it_runs=True)


async def unload_model(ls: MidfillServer) -> None:
    """Let the core give its model's memory back."""
    try:
        ls.link.unload()
    except MidfillError as error:
        ls.notices.error(str(error))


async def list_cores(ls: MidfillServer) -> list[dict[str, Any]]:  # noqa: ARG001 - pygls asks for the name
    """The cores of this machine."""
    return await describe_cores(runtime_folder())


async def _end(ls: MidfillServer, how: StopHow) -> None:
    await ls.link.stop()
    if ls.session.settings.core:
        return
    try:
        await end_core(local_core(ls.session.settings).file, how)
    except MidfillError as error:
        ls.notices.error(str(error))

"""The commands `midfill core list`, `stop`, `restart` and `unload`: the running cores of this user on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from midfill.doctor.findings import megabytes
from protocol.errors import BadInput, MidfillError
from protocol.rendezvous import CoreAddress, address_file, model_of_core, resolve_model, runtime_folder
from protocol.settings import LOCAL_ENGINE, SETTINGS, Settings, option_name

_Model = Annotated[str | None, typer.Option("--model", help="Only the core of this model.", show_default=False)]
_Act = Callable[[Path, CoreAddress], Awaitable[str]]


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the cores as a JSON array.")] = False,
) -> None:
    """List the running cores: model, state, address, process, memory, and settings that are not at their defaults."""
    from lsp_server.core.local_cores import describe_cores

    found = asyncio.run(describe_cores(runtime_folder()))
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for core in found:
        typer.echo(_line(core))
    if not found:
        typer.echo("midfill: no core is running", err=True)


def stop_command(model: _Model = None) -> None:
    """End the running cores. Editors that use one show this, and wait until you restart it or another core runs."""
    from lsp_server.core.local_cores import end_core

    async def stop(file: Path, address: CoreAddress) -> str:
        await end_core(file, "stop")
        return f"stopped {address.model} (process {address.pid})"

    asyncio.run(_each(model, stop))


def restart_command(model: _Model = None) -> None:
    """Replace the running cores by new processes with the same settings; editors that use one reconnect."""
    from lsp_server.core.local_cores import end_core
    from lsp_server.core.target import local_core

    async def restart(file: Path, address: CoreAddress) -> str:
        await end_core(file, "restart")
        # An editor may start the core first, with its own settings.
        known: dict[str, Any] = {name: value for name, value in address.settings.items() if name in SETTINGS}
        model = model_of_core(address.model, known.get("engine", LOCAL_ENGINE))
        started = await local_core(Settings(**{**known, "model": model})).find_or_start()
        return f"restarted {address.model} (process {address.pid}): now process {started.pid} at {started.url}"

    asyncio.run(_each(model, restart))


def unload_command(model: _Model = None) -> None:
    """Free the memory of the running cores' models; the next suggestion loads the model again."""
    from lsp_server.core.local_cores import unload

    async def give_back(file: Path, address: CoreAddress) -> str:
        await unload(file)
        return f"unloading {address.model} (process {address.pid})"

    asyncio.run(_each(model, give_back))


async def _each(model: str | None, act: _Act) -> None:
    """Apply `act` to the core of this model, or to every core; BadInput if none runs."""
    from lsp_server.core.local_cores import published_core

    folder = runtime_folder()
    files = sorted(folder.glob("core-*.json")) if model is None else [address_file(folder, resolve_model(model))]
    running = [(file, address) for file in files if (address := published_core(file)) is not None]
    if not running:
        raise BadInput("no core is running" if model is None else f"no core is running for {model}")
    failed = False
    for file, address in running:
        try:
            typer.echo(await act(file, address))
        except MidfillError as error:
            failed = True
            typer.echo(f"midfill: {address.model}: {error}", err=True)
    if failed:
        raise typer.Exit(1)


def _line(core: dict[str, Any]) -> str:
    settings = " ".join(f"{option_name(name)} {value}" for name, value in core["settings"].items())
    memory = "" if core["memoryBytes"] is None else megabytes(core["memoryBytes"])
    state = f"{core['state']} ({core['detail']})" if core["detail"] else core["state"]
    return "  ".join(filter(None, [core["model"], state, core["url"], f"process {core['pid']}", memory, settings]))

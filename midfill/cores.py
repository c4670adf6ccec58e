"""The commands `midfill core list`, `stop`, `restart`, `unload` and `free`: this user's cores on this machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.errors import BadInput, MidfillError
from protocol.identity import has_key_of
from protocol.rendezvous import CoreAddress, cache_folder, model_of_core, read_stop, resolve_model, runtime_folder
from protocol.settings import LOCAL_ENGINE, SETTINGS, Settings, option_name
from protocol.settings_sources import with_environment
from protocol.sizes import megabytes

_Model = Annotated[str | None, typer.Option("--model", help="Only the core of this model.", show_default=False)]
_UNDO_STOP = (
    "editors that are open now wait. A core starts again when you request a suggestion by hand in one of them, when "
    "you open another editor, or by `midfill core restart`"
)
_Act = Callable[[Path, CoreAddress], Awaitable[str]]


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the cores as a JSON array.")] = False,
) -> None:
    """List the cores, running or stopped by you: model, state, address, process, and settings not at their defaults.

    The second line has the memory of the process, the weights and the workspaces, and resident KV by tier.
    """
    from lsp_server.core.controlling import describe_cores

    found = asyncio.run(describe_cores(runtime_folder()))
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for core in found:
        for line in _lines(core):
            typer.echo(line)
    if not found:
        typer.echo("midfill: no core is running", err=True)


def cores_command(context: typer.Context) -> None:
    """List the running cores, or control them with a subcommand; as `midfill core list`, `stop` and so on."""
    if context.invoked_subcommand is None:
        list_command()


def stop_command(model: _Model = None) -> None:
    """End the running cores. Editors that are open now show this, and start none until you ask for one there."""
    from lsp_server.core.local_cores import stop_core

    async def stop(file: Path, address: CoreAddress) -> str:
        await stop_core(file, "`midfill core stop`")
        return f"stopped {address.model} (process {address.pid})"

    _each(model, stop)
    typer.echo(f"midfill: {_UNDO_STOP}", err=True)


def restart_command(model: _Model = None) -> None:
    """Replace the running cores, and those that you stopped, by new processes with the same settings.

    The key of an engine is not saved: a core that has one is replaced only if MIDFILL_ENGINE_KEY has it, too.
    """
    from lsp_server.core.local_cores import end_core
    from lsp_server.core.target import local_core

    async def restart(file: Path, address: CoreAddress) -> str:
        ours = with_environment(Settings(), os.environ)
        if not has_key_of(address.settings, ours):
            raise BadInput("it has an engineKey that this command does not know: set MIDFILL_ENGINE_KEY")
        did = "restarted" if await end_core(file, "restart") else "started"
        # An editor may start the core first, with its own settings.
        known: dict[str, Any] = {name: value for name, value in address.settings.items() if name in SETTINGS}
        model = model_of_core(address.model, known.get("engine", LOCAL_ENGINE))
        started = await local_core(Settings(**{**known, "model": model})).find_or_start()
        return f"{did} {address.model} (process {address.pid}): now process {started.pid} at {started.url}"

    _each(model, restart, stopped_too=True)


def unload_command(model: _Model = None) -> None:
    """Free the memory of the running cores' models; the next suggestion loads the model again."""
    from lsp_server.core.controlling import unload

    async def give_back(file: Path, address: CoreAddress) -> str:
        return f"unloaded {address.model} (process {address.pid}): {await unload(file)}"

    _each(model, give_back)


def free_command(
    model: _Model = None,
    disk: Annotated[bool, typer.Option("--disk", help="Remove what is saved on disk, too.")] = False,
) -> None:
    """Drop all resident KV of the running cores from memory; the models stay loaded.

    A core saves it on disk first, so that the next prompts are warm, unless --disk removes it there too.
    """
    from lsp_server.core.controlling import free

    async def give_back(file: Path, address: CoreAddress) -> str:
        return f"freed {address.model} (process {address.pid}): {await free(file, disk=disk)}"

    if disk and model is None:
        from kv_store.disk.model_folders import remove_other_models

        for removed in remove_other_models(cache_folder()):
            typer.echo(f"removed {removed.partition(':')[0]}, which no core had open")
        if not _found(None):
            return
    _each(model, give_back)


def _each(model: str | None, act: _Act, *, stopped_too: bool = False) -> None:
    """Apply `act` to the cores of this model, or to every core; BadInput if there is none."""

    async def act_on_all() -> bool:
        well = True
        for file, address in found:
            try:
                typer.echo(await act(file, address))
            except MidfillError as error:
                well = False
                typer.echo(f"midfill: {address.model}: {error}", err=True)
        return well

    found = _found(model, stopped_too=stopped_too)
    if not found:
        raise BadInput("no core is running" if model is None else f"no core is running for {model}")
    if not asyncio.run(act_on_all()):
        raise typer.Exit(1)


def _found(model: str | None, *, stopped_too: bool = False) -> list[tuple[Path, CoreAddress]]:
    """The running cores with their address files; with `stopped_too` also those that the user has stopped."""
    from lsp_server.core.local_cores import published_core

    folder = runtime_folder()
    found = {file: published_core(file) for file in sorted(folder.glob("core-*.json"))}
    if stopped_too:
        for file in folder.glob("core-*.stopped"):
            stopped = read_stop(file)
            found.setdefault(file.with_suffix(".json"), stopped.address if stopped else None)
    names = None if model is None else {model, resolve_model(model)}
    return [(file, core) for file, core in found.items() if core is not None and (names is None or core.model in names)]


def _lines(core: dict[str, Any]) -> Iterator[str]:
    settings = " ".join(f"{option_name(name)} {value}" for name, value in core["settings"].items())
    memory = "" if core["memory"] or core["memoryBytes"] is None else megabytes(core["memoryBytes"])
    state = f"{core['state']} ({core['detail']})" if core["detail"] else core["state"]
    process = "" if core["pid"] is None else f"process {core['pid']}"
    yield "  ".join(filter(None, [core["model"], state, core["url"], process, memory, settings]))
    if core["summary"]:
        yield f"  {core['summary']}"

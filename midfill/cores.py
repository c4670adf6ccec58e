"""The commands `midfill core` and `midfill token`: run a core, list and control this user's cores, and keep a team's
tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from midfill.options import takes_options
from protocol.errors import BadInput, MidfillError
from protocol.messages import megabytes
from protocol.rendezvous import (
    CoreAddress,
    address_file,
    cache_folder,
    core_name,
    has_key_of,
    model_of_core,
    read_stop,
    resolve_model,
    runtime_folder,
)
from protocol.settings import LOCAL_ENGINE, SETTINGS, Settings, option_name
from protocol.settings_sources import with_environment


@dataclass(frozen=True, kw_only=True)
class CoreOptions:
    """The options, besides settings, as the command line spells them."""

    host: Annotated[str, typer.Option(help="Address to listen on; other machines can connect if it is not loopback.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0
    allow_origin: Annotated[list[str] | None, typer.Option(help="Origin of a web page that may connect; repeatable.")] = None
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name that requests may use for this core, such as a proxy's; repeatable.")
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain in PEM: serve TLS 1.2 and later at this port.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate, in PEM, not encrypted.")] = None
    users: Annotated[Path | None, typer.Option(help="File of users with tokens of their own; see `midfill token`.")] = None
    log_file: Annotated[
        Path | None, typer.Option(help="Append the log to this file instead of writing it to stderr; kept below 4 MiB.")
    ] = None
    replaceable: Annotated[
        bool, typer.Option(help="Exit if a client with other settings connects and no other client is connected.")
    ] = False


@takes_options
def core_command(settings: Settings, context: typer.Context, arguments: CoreOptions) -> None:
    """Run the inference core that language servers share, or control the running ones with a subcommand.

    Language servers start a core if none runs. Run one by hand to serve other machines, or programs that speak HTTP: it
    takes the place of one that a language server has started.
    """
    if context.invoked_subcommand is not None:
        return
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise BadInput("--tls-cert and --tls-key need each other")
    from inference.core.process import run, serve_options

    options = serve_options(
        settings,
        host=arguments.host,
        port=arguments.port,
        allowed_origins=tuple(arguments.allow_origin or ()),
        allowed_hosts=tuple(arguments.allow_host or ()),
        certificate=(arguments.tls_cert, arguments.tls_key) if arguments.tls_cert and arguments.tls_key else None,
        users=arguments.users,
        log_file=arguments.log_file,
        replaceable=arguments.replaceable,
    )
    # Clients start cores that give way; two of them agree by the core's lock.
    with ExitStack() as place:
        if not arguments.replaceable:
            check = partial(_check_address, arguments.host, arguments.port)
            place.enter_context(_place_of(options.engine.model, options.engine.engine, check))
        run(options, on_published=place.close)


def _check_address(host: str, port: int) -> None:
    """Raise PortInUse or BadInput if the core could not listen there."""
    from inference.core.process import bind

    bind(host, port).close()


def _place_of(model: str, engine: str, check: Callable[[], None]) -> AbstractContextManager[None]:
    from lsp_server.core_client.processes import place_of

    file = address_file(runtime_folder(), core_name(model, engine))
    return place_of(file, lambda line: typer.echo(f"midfill: {line}", err=True), check)


_Model = Annotated[str | None, typer.Option("--model", help="Only the core of this model.", show_default=False)]
_UNDO_STOP = (
    "a core starts again when you open an editor, request a suggestion by hand in one that is open now, or run "
    "`midfill core restart`"
)
_Act = Callable[[Path, CoreAddress], Awaitable[str]]


def list_command(as_json: Annotated[bool, typer.Option("--json", help="Print the cores as a JSON array.")] = False) -> None:
    """List the cores, running or stopped by you: model, state, address, process, and settings not at their defaults.

    The second line has the memory of the process, the weights and the workspaces, and resident KV by tier.
    """
    from lsp_server.core_client.control import describe_cores

    found = asyncio.run(describe_cores(runtime_folder()))
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for core in found:
        for line in _lines(core):
            typer.echo(line)
    if not found:
        typer.echo("midfill: no core is running", err=True)


def stop_command(model: _Model = None) -> None:
    """End the running cores. Editors that are open now show this, and start none until you ask for one there."""
    from lsp_server.core_client.processes import stop_core

    async def stop(file: Path, address: CoreAddress) -> str:
        await stop_core(file, "`midfill core stop`")
        return f"stopped {address.model} (process {address.pid})"

    _each(model, stop)
    typer.echo(f"midfill: {_UNDO_STOP}", err=True)


def restart_command(model: _Model = None) -> None:
    """Replace the running cores, and those that you stopped, by new processes with the same settings.

    The key of an engine is not saved: a core that has one is replaced only if MIDFILL_ENGINE_KEY has it, too.
    """
    from lsp_server.core_client.link import local_core
    from lsp_server.core_client.processes import end_core

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
    from lsp_server.core_client.control import unload

    async def unload_core(file: Path, address: CoreAddress) -> str:
        return f"unloaded {address.model} (process {address.pid}): {await unload(file)}"

    _each(model, unload_core)


def free_command(
    model: _Model = None, disk: Annotated[bool, typer.Option("--disk", help="Remove what is saved on disk, too.")] = False
) -> None:
    """Drop all resident KV of the running cores from memory; the models stay loaded.

    A core saves it on disk first, so that the next prompts are warm, unless --disk removes it there too.
    """
    from lsp_server.core_client.control import free

    async def free_core(file: Path, address: CoreAddress) -> str:
        return f"freed {address.model} (process {address.pid}): {await free(file, disk=disk)}"

    if disk and model is None:
        from kv_store.disk_folders import remove_other_models

        for removed in remove_other_models(cache_folder()):
            typer.echo(f"removed {removed.partition(':')[0]}, which no core had open")
        if not _found(None):
            return
    _each(model, free_core)


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
    from lsp_server.core_client.processes import published_core

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


_File = Annotated[Path, typer.Option("--users", help="The file of users that the core was started with.")]


def add_command(
    name: Annotated[str, typer.Argument(help="User's name; one that has a token gets another one.")],
    users: _File,
    role: Annotated[
        Literal["user", "metrics"], typer.Option(help="`user`, or `metrics`: may read /metrics and nothing else.")
    ] = "user",
) -> None:
    """Add a token for a user and print it, once: the file keeps only its digest."""
    from inference.core.users import add_token

    typer.echo(add_token(users, name, role))


def list_tokens_command(users: _File) -> None:
    """List the tokens: user, id, role, and when the token was added."""
    from inference.core.users import read_users

    for token in sorted(read_users(users), key=lambda token: (token.name, token.added)):
        typer.echo(f"{token.name}  {token.id}  {token.role}  {token.added}")


def revoke_command(
    which: Annotated[str, typer.Argument(metavar="NAME|ID", help="A user, for all tokens of it, or a token's id.")], users: _File
) -> None:
    """Revoke tokens: a running core ends their connections within a second."""
    from inference.core.users import revoke_tokens

    for token in revoke_tokens(users, which):
        typer.echo(f"revoked {token.id} of {token.name}")

"""Chooses the core from the settings: one on another machine, or the one of this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from lsp_server.core.client import Endpoint
from lsp_server.core.link import LOCAL_RETRY, REMOTE_RETRY, CoreTarget
from lsp_server.core.local_cores import endpoint_of
from lsp_server.core.process import LocalCore, core_command, core_environment
from protocol.errors import BadInput, BadSettings, Unauthorized
from protocol.identity import IDENTITY_SETTINGS, describe, differences
from protocol.rendezvous import (
    address_file,
    core_name,
    end_stop,
    read_stop,
    resolve_engine,
    resolve_model,
    runtime_folder,
)
from protocol.settings import Settings, json_name

# Importing torch from a cold disk on a busy machine takes long.
_START_TIMEOUT_S = 120.0
HOW_TO_START = "request a suggestion by hand, restart the core, or run `midfill core`"


def target_of(settings: Settings, since: float) -> CoreTarget:
    """The core to stay connected to, for a client that began at `since`, in seconds since the epoch.

    A stop from before is not meant for this client: it starts a core.
    """
    return _remote_target(settings) if settings.core else _local_target(settings, since)


def same_core(one: Settings, other: Settings) -> bool:
    """Whether both settings lead to the same core in the same way."""
    names = ("core", "core_token", "model", *IDENTITY_SETTINGS)
    return all(getattr(one, name) == getattr(other, name) for name in names)


def remote_endpoint(settings: Settings) -> Endpoint:
    """The core at the address that the settings name.

    Raises BadSettings for a bad address, and Unauthorized if there is no token for it. Any client may name an
    address, so it never receives this machine's own token, which gives access to everything resident here.
    """
    try:
        url = urlsplit(settings.core)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    if host is None or url.scheme not in ("ws", "wss"):
        raise BadSettings(f"core = {settings.core!r}: expected ws://HOST:PORT or wss://HOST:PORT")
    address = url._replace(path=url.path.rstrip("/") or "/ws").geturl()
    if not settings.core_token:
        raise Unauthorized(
            f"the core at {address} needs its token: set coreToken (--core-token, MIDFILL_CORE_TOKEN); midfill"
            " does not send this machine's own token to a configured address"
        )
    return Endpoint(address, settings.core_token)


def _remote_target(settings: Settings) -> CoreTarget:
    async def find() -> Endpoint:
        return remote_endpoint(settings)

    return CoreTarget(find, REMOTE_RETRY, remote=True)


def local_core(settings: Settings) -> LocalCore:
    """The core of this machine for these settings; BadInput if the runtime folder cannot be used."""
    model, engine = resolve_model(settings.model), resolve_engine(settings.engine)
    settings = replace(settings, model=model, engine=engine)  # the core is started in another folder
    file = address_file(runtime_folder(), core_name(model, engine))
    command = core_command(settings, file.with_suffix(".log"))
    return LocalCore(file, command, _START_TIMEOUT_S, core_environment(settings))


def _local_target(settings: Settings, since: float) -> CoreTarget:
    async def find() -> Endpoint:
        core = local_core(settings)
        address = await core.find_or_start()
        found = differences(address.settings, settings)
        differs = f"the running core was started with {describe(found, json_name)}" if found else ""
        return endpoint_of(address, core.file, differs)

    def stopped() -> str:
        with suppress(BadInput):  # a runtime folder that cannot be used, which `find` reports
            found = read_stop(local_core(settings).file)
            if found is not None and found.at >= since:
                return f"{found.by} stopped the core: {HOW_TO_START}"
        return ""

    return CoreTarget(find, LOCAL_RETRY, stopped, lambda: end_stop(local_core(settings).file))

"""Control of this machine's cores: describes them with their memory, unloads and frees them, links a dashboard."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import asdict

from lsp_server.core_client.client import CoreClient, Endpoint
from lsp_server.core_client.link import target_of
from lsp_server.core_client.processes import answering_core, ask_status, closing, endpoint_of, published_core, resident_bytes
from protocol.errors import BadInput, CoreBlocked, CoreUnavailable, Unauthorized
from protocol.messages import PROTOCOL_VERSION, CoreMemory, CoreStatus, megabytes
from protocol.rendezvous import CoreAddress, read_stop
from protocol.settings import SETTINGS, Settings

logger = logging.getLogger(__name__)

_ANSWER_S = 5.0
_WORK_S = 60.0  # a core that unloads or frees saves its KV first, after the requests at work


async def describe_cores(folder: Path) -> list[dict[str, Any]]:
    """Each running core of this machine as a JSON object, then those that the user has stopped.

    `settings` has those that are not at their defaults, and `memory` the fields of `CoreMemory`; it is None if the core
    does not say. `summary` tells the memory in one line.
    """
    described = []
    named = {file.with_suffix(".json") for file in folder.glob("core-*") if file.suffix in (".json", ".stopped")}
    for file in sorted(named):
        try:
            address = published_core(file)
        except BadInput as error:
            logger.warning("%s", error)
            continue
        if address is not None:
            described.append(await _describe(address, file))
        elif (stopped := read_stop(file)) is not None and stopped.address is not None:
            nowhere = {"url": "", "pid": None, "memoryBytes": None}  # its process number may be another's now
            described.append(_entry(stopped.address, "stopped", f"by {stopped.by}") | nowhere)
    return sorted(described, key=lambda core: core["state"] == "stopped")


def entry(model: str, state: str, detail: str, url: str, memory: CoreMemory | None) -> dict[str, Any]:
    """A core as a JSON object."""
    return {
        "model": model,
        "state": state,
        "detail": detail,
        "url": url,
        "pid": None,
        "memoryBytes": memory.process_bytes if memory else None,
        "memory": {**asdict(memory), "tiers": [asdict(tier) for tier in memory.tiers]} if memory else None,
        "summary": summary(memory) if memory else "",
        "settings": {},
    }


def summary(memory: CoreMemory) -> str:
    """The memory of a core in one line."""
    parts = [f"process {megabytes(memory.process_bytes)}"]
    if memory.weights_bytes:
        parts.append(f"weights {megabytes(memory.weights_bytes)}")
    if memory.workspaces:
        noun = "workspace" if memory.workspaces == 1 else "workspaces"
        parts.append(f"{memory.workspaces} {noun} {megabytes(memory.workspaces_bytes)}")
    tiers = [f"{tier.name} {megabytes(tier.used_bytes)} ({tier.tokens} tokens)" for tier in memory.tiers]
    if tiers:
        parts.append(f"KV: {', '.join(tiers)}")
    return ", ".join(parts)


def freed(before: CoreMemory, after: CoreMemory) -> str:
    """The memory that a core has freed, in one line."""

    def tokens(memory: CoreMemory) -> int:
        return sum(tier.tokens for tier in memory.tiers)

    return (
        f"{tokens(before) - tokens(after)} resident tokens; the process had {megabytes(before.process_bytes)} and has "
        f"{megabytes(after.process_bytes)}"
    )


async def unload(file: Path) -> str:
    """Make the core that this address file names free its model's memory; what it gave back.

    CoreUnavailable if none answers, CoreBlocked if it is still at work after a minute.
    """
    unloaded = asyncio.Event()

    def hear(status: CoreStatus) -> None:
        if status.state in ("unloaded", "failed"):
            unloaded.set()

    async with _core(file, hear) as client:
        before = await client.memory()
        client.unload()
        await unloaded.wait()
        return freed(before, await client.memory())


async def free(file: Path, *, disk: bool) -> str:
    """Make this core drop its resident KV, with `disk` also what is saved; what it gave back; errors as `unload`."""
    async with _core(file) as client:
        return freed(await client.memory(), await client.free(disk=disk))


@asynccontextmanager
async def _core(file: Path, hear: Callable[[CoreStatus], None] = lambda _: None) -> AsyncIterator[CoreClient]:
    address = await answering_core(file)
    if address is None:
        raise CoreUnavailable("no core listens")
    try:
        async with asyncio.timeout(_WORK_S), closing(await CoreClient.open(endpoint_of(address, file), hear)) as client:
            yield client
    except TimeoutError as error:
        raise CoreBlocked(f"the core is still at work after {_WORK_S:.0f} s") from error


async def _describe(address: CoreAddress, file: Path) -> dict[str, Any]:
    if address.protocol_version != PROTOCOL_VERSION:
        why = f"protocol {address.protocol_version}, this midfill: {PROTOCOL_VERSION}"
        return _entry(address, "other version", why)
    try:
        status = await ask_status(endpoint := endpoint_of(address, file))
        async with asyncio.timeout(_ANSWER_S), closing(await CoreClient.open(endpoint, lambda _: None)) as client:
            return _entry(address, status.state, status.detail, await client.memory())
    except (CoreUnavailable, TimeoutError) as error:
        return _entry(address, "unreachable", str(error) or "the core does not answer")


def _entry(address: CoreAddress, state: str, detail: str, memory: CoreMemory | None = None) -> dict[str, Any]:
    known = {} if memory else {"memoryBytes": resident_bytes(address.pid)}
    chosen = {name: value for name, value in address.settings.items() if name not in SETTINGS or SETTINGS[name].default != value}
    described = entry(address.model, state, detail, address.url, memory)
    return {**described, **known, "pid": address.pid, "settings": chosen}


_TIMEOUT_S = 10.0
_LONGEST_ANSWER = 4096


async def dashboard_url(settings: Settings, *, once: bool) -> str:
    """The address of the dashboard, of the core that these settings name; starts one on this machine if none runs.

    With `once` it opens the page once and soon: for a browser's command line, which other users of the machine may see.
    Raises Unauthorized if the core refuses the token, and CoreUnavailable if it does not answer.
    """
    endpoint = await target_of(settings, time.time()).find()
    await endpoint.check()
    try:
        return await asyncio.to_thread(_ask, endpoint, once)
    except (OSError, HTTPException, ValueError, KeyError) as error:
        raise CoreUnavailable(f"the core at {endpoint.url} has no dashboard: {error!r}") from error


def _ask(endpoint: Endpoint, once: bool) -> str:
    address = urlsplit(endpoint.url)
    connection_class = HTTPSConnection if address.scheme == "wss" else HTTPConnection
    connection = connection_class(address.hostname or "", address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/dashboard/link", headers={"Authorization": f"Bearer {endpoint.token}"})
        response = connection.getresponse()
        if response.status == HTTPStatus.UNAUTHORIZED:
            raise Unauthorized(f"the core at {endpoint.url} refused the token")
        if response.status == HTTPStatus.FORBIDDEN:
            raise Unauthorized(f"only the owner's token opens the dashboard of {endpoint.url}: it shows every user's prompts")
        if response.status != HTTPStatus.OK:
            raise CoreUnavailable(f"the core at {endpoint.url} has no dashboard (HTTP {response.status})")
        link = json.loads(response.read(_LONGEST_ANSWER))
    finally:
        connection.close()
    scheme = "https" if address.scheme == "wss" else "http"
    return f"{scheme}://{address.netloc}/dashboard#{link['code' if once else 'key']}"

"""Control of this machine's cores: describes them with their memory, unloads and frees them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from lsp_server.core_client.client import CoreClient
from lsp_server.core_client.processes import answering_core, ask_status, closing, endpoint_of, published_core, resident_bytes
from protocol.errors import BadInput, CoreBlocked, CoreUnavailable
from protocol.messages import PROTOCOL_VERSION, CoreMemory, CoreStatus, megabytes
from protocol.rendezvous import CoreAddress, read_stop
from protocol.settings import SETTINGS

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


def freed(before: CoreMemory, after: CoreMemory, *, disk: bool = False) -> str:
    """The memory that a core has freed, in one line; with `disk` what it has deleted there, too, else it saved it there."""

    def tokens(memory: CoreMemory) -> int:
        return sum(tier.tokens for tier in memory.tiers if disk or tier.name != "disk")

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
        return freed(await client.memory(), await client.free(disk=disk), disk=disk)


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

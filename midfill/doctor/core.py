"""The cores: which are running, whether they answer, and whether the token that guards them is private."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil

from lsp_server.core_client import CoreClient, Endpoint
from lsp_server.core_target import remote_endpoint
from midfill.doctor.findings import Section, megabytes
from protocol.errors import BadInput, CoreUnavailable, Unauthorized
from protocol.messages import CoreStatus
from protocol.rendezvous import read_address, read_or_make_token, runtime_folder
from protocol.settings import Settings

_STATUS_SECONDS = 5.0


async def cores(settings: Settings) -> Section:
    """The token file, the cores of this machine, and the one on another machine if the settings name one."""
    try:
        folder = runtime_folder()
        token = read_or_make_token(folder)
    except (BadInput, OSError) as error:
        return Section("core", (), (str(error),))
    mode = f", mode {(folder / 'token').stat().st_mode & 0o777:o}" if os.name == "posix" else ""
    found = [("token file", f"{folder / 'token'}{mode}", "")]
    found += [await _local_core(file, token) for file in sorted(folder.glob("core-*.json"))]
    if len(found) == 1:
        found.append(("this machine", "no core is running: the first language server starts one", ""))
    if settings.core:
        found.append(("other machine", *await _remote_core(settings)))
    return Section("core", tuple(item[:2] for item in found), tuple(item[2] for item in found if item[2]))


async def _remote_core(settings: Settings) -> tuple[str, str]:
    """State and problem of the core on another machine."""
    try:
        endpoint = remote_endpoint(settings)
    except (BadInput, Unauthorized) as error:
        return ("not asked", str(error))
    return await _ask(endpoint, "start it, or correct the settings core and core_token")


async def _local_core(file: Path, token: str) -> tuple[str, str, str]:
    """Name, state and problem of the core that the address file names."""
    try:
        address = read_address(file)
    except BadInput as error:
        return (file.name, "unreadable", f"{error}: remove the file")
    if address is None:
        return (file.name, "has just ended", "")
    try:
        process = psutil.Process(address.pid)
        resident = process.memory_info().rss
    except psutil.Error:
        return (address.model, "ended without cleaning up: the next language server starts another", "")
    state, problem = await _ask(Endpoint(address.url, token), f"end the process {address.pid}")
    return (address.model, f"{state}; {address.url}, process {address.pid}, {megabytes(resident)}", problem)


async def _ask(endpoint: Endpoint, remedy: str) -> tuple[str, str]:
    """What the core says that it is doing, and the problem if it says nothing or has failed."""
    told: asyncio.Future[CoreStatus] = asyncio.get_running_loop().create_future()

    def hear(status: CoreStatus) -> None:
        if not told.done():
            told.set_result(status)

    try:
        client = await CoreClient.open(endpoint, hear)
    except CoreUnavailable as error:
        return ("unreachable", f"{error}: {remedy}")
    try:
        status = await asyncio.wait_for(told, _STATUS_SECONDS)
    except TimeoutError:
        return ("silent", f"the core at {endpoint.url} accepts connections but says nothing: {remedy}")
    finally:
        await client.close()
    problem = f"the core could not load {status.model}: {status.detail}" if status.state == "failed" else ""
    return (" ".join(filter(None, [status.state, status.device and f"on {status.device}"])), problem)

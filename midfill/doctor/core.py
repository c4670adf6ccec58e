"""Checks what editors find: the cores and their token file, and whether one file gets suggestions."""

from __future__ import annotations

import os
from pathlib import Path

from lsp_server.core.client import Endpoint
from lsp_server.core.link import CoreLink, LinkStatus
from lsp_server.core.local_cores import ask_status, endpoint_of, published_core
from lsp_server.core.os_process import resident_bytes
from lsp_server.core.target import remote_endpoint
from lsp_server.editing.languages import language_id_of
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.reasons import of_core
from midfill.doctor.findings import Section
from midfill.workspaces import workspace_of
from protocol.errors import BadInput, CoreUnavailable, Unauthorized
from protocol.identity import describe, differences
from protocol.messages import PROTOCOL_VERSION
from protocol.rendezvous import (
    CoreAddress,
    core_name,
    read_address,
    read_or_make_token,
    resolve_engine,
    resolve_model,
    runtime_folder,
)
from protocol.settings import Settings, option_name
from protocol.sizes import megabytes

_END_IT = "midfill core stop"


async def cores(settings: Settings) -> Section:
    """The token file, the cores of this machine, and the core on another machine if the settings name one."""
    try:
        folder = runtime_folder()
        read_or_make_token(folder)
    except (BadInput, OSError) as error:
        return Section("core", (), (str(error),))
    mode = f", mode {(folder / 'token').stat().st_mode & 0o777:o}" if os.name == "posix" else ""
    found = [("token file", f"{folder / 'token'}{mode}", "")]
    found += [await _local_core(file, settings) for file in sorted(folder.glob("core-*.json"))]
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
    return await _ask(endpoint, "start the core, or correct the settings core and core_token")


async def _local_core(file: Path, settings: Settings) -> tuple[str, str, str]:
    """Name, state and problem of the core that the address file names."""
    try:
        named, running = read_address(file), published_core(file)
    except BadInput as error:
        return (file.name, "unreadable", f"{error}: remove the file")
    if named is None:
        return (file.name, "just exited", "")
    if running is None:
        return (named.model, "crashed: the next language server starts another", "")
    where = f"{running.url}, process {running.pid}{_memory(running)}"
    if running.protocol_version != PROTOCOL_VERSION:
        problem = (
            f"process {running.pid} is a core of another version of midfill: close the programs that use it, "
            f"or {_END_IT}"
        )
        return (named.model, f"other version; {where}", problem)
    state, problem = await _ask(endpoint_of(running, file), _END_IT)
    parts = [state, where]
    if running.model == core_name(resolve_model(settings.model), resolve_engine(settings.engine)):
        parts.append(describe(differences(running.settings, settings), option_name))
    return (named.model, "; ".join(filter(None, parts)), problem)


def _memory(address: CoreAddress) -> str:
    resident = resident_bytes(address.pid)
    return "" if resident is None else f", {megabytes(resident)}"


async def _ask(endpoint: Endpoint, remedy: str) -> tuple[str, str]:
    """The core's state, and the problem if it does not answer or has failed."""
    try:
        status = await ask_status(endpoint)
    except CoreUnavailable as error:
        return ("unreachable", f"{error}: {remedy}")
    problem = ""
    if status.state == "failed":
        reason = of_core(LinkStatus(status.state, status))
        said = reason.explanation if reason is not None else ""
        problem = f"{said} A client with other settings replaces the core"
    return (" ".join(filter(None, [status.state, status.device and f"on {status.device}"])), problem)


async def suggestions(file: Path, settings: Settings) -> Section:
    """Why the file gets no suggestions by its name, its rules and the settings, whatever the core does."""
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        return Section("suggestions", ((str(file), "unreadable"),), (f"{file} cannot be read: {error.strerror}",))
    core = CoreLink(lambda _: None)
    core.status = LinkStatus("ready")  # as far as the file's reason goes: it gets no request
    session = EditingSession(core, settings, "doctor", lambda _: None)
    path = file.resolve()
    session.documents.use_folders([workspace_of(path).as_uri()])
    opened = session.documents.open(path.as_uri(), language_id_of(path.suffix), 1, text)
    await opened.surroundings.verdicts.look([opened.document.uri])
    reason = session.explainer.reason(opened)
    return Section("suggestions", ((str(file), "on" if reason is None else f"{reason.text}: {reason.explanation}"),))

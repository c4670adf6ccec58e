"""Checks of the doctor on cores and engines: whether they answer, with what, and whether a file gets suggestions."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from lsp_server.core_client.client import Endpoint
from lsp_server.core_client.link import CoreLink, LinkStatus, remote_endpoint
from lsp_server.core_client.processes import answering_core, ask_status, endpoint_of, published_core, resident_bytes
from lsp_server.documents.languages import language_id_of
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.reasons import of_core
from midfill.doctor.findings import Section
from midfill.headless.environment import workspace_of
from protocol.errors import BadInput, CoreUnavailable, MidfillError, Unauthorized
from protocol.messages import PROTOCOL_VERSION, CompletionRequest, Prompt, Usage, megabytes
from protocol.rendezvous import (
    CoreAddress,
    address_file,
    core_name,
    describe,
    differences,
    read_address,
    read_or_make_token,
    resolve_engine,
    resolve_model,
    runtime_folder,
)
from protocol.settings import LOCAL_ENGINE, Settings, option_name

if TYPE_CHECKING:
    from inference.remote.engine import RemoteEngine


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


async def loaded_on(settings: Settings) -> str:
    """The device of the core here that serves these settings, once its model is loaded; otherwise empty."""
    name = core_name(resolve_model(settings.model), resolve_engine(settings.engine))
    try:
        file = address_file(runtime_folder(), name)
        running = await answering_core(file)
        if running is None or differences(running.settings, settings):
            return ""
        status = await ask_status(endpoint_of(running, file))
    except (MidfillError, OSError):
        return ""  # `cores` says why
    return status.device if status.state == "ready" else ""


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
        problem = f"process {running.pid} is a core of another version of midfill: close the programs that use it, or {_END_IT}"
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
    await opened.workspace.verdicts.look([opened.document.uri])
    reason = session.explainer.reason(opened)
    return Section("suggestions", ((str(file), "on" if reason is None else f"{reason.text}: {reason.explanation}"),))


_LINES = 20
_CACHED_SHARE = 0.5
"""Least share of a repeated prompt that a caching engine has resident: some keep whole blocks only."""


async def engine(settings: Settings) -> Section | None:
    """The engine's facts and problems; None for the local engine. Sends two short prompts to it."""
    if settings.engine == LOCAL_ENGINE:
        return None
    return await asyncio.to_thread(_examine, settings)


def _examine(settings: Settings) -> Section:
    from inference.loading.options import engine_options
    from inference.remote.connecting import connect
    from inference.remote.server import read_engine_address

    facts = [("engine", settings.engine)]
    try:
        address = read_engine_address(settings.engine)
        if address is not None and address.program:
            return Section("engine", (*facts, ("program", _program(address.program))), ())
        connected = connect(engine_options(settings))
    except MidfillError as error:
        return Section("engine", tuple(facts), (str(error),))
    try:
        return _describe(connected, facts)
    finally:
        connected.close()


def _program(program: str) -> str:
    """The path of the program; BadInput if it is not there. The doctor does not start it."""
    import shutil

    found = shutil.which(program)
    if found is None:
        raise BadInput(f"there is no program {program!r}: install llama.cpp, or set --engine llama-server=PATH")
    return f"{found}, started by the core on its first request"


def _describe(connected: RemoteEngine, facts: list[tuple[str, str]]) -> Section:
    info = connected.info
    facts += [
        ("model", info.model),
        ("context", f"{info.context_tokens} tokens"),
        ("requests", f"{connected.capacity} together"),
        ("FIM format", connected.tokenizer.format.name),
        ("tokens", connected.tokens_checked),
    ]
    problems = []
    try:
        usage = _ask_twice(connected)
    except MidfillError as error:
        problems.append(str(error))
    else:
        cached = usage.prompt_tokens - usage.recomputed_tokens
        told = f"{cached} of {usage.prompt_tokens} tokens of a repeated prompt"
        facts.append(("cache", "not reported" if connected.hides_cached else told))
        if cached < _CACHED_SHARE * usage.prompt_tokens:
            problems.append("the engine recomputes repeated prompts: switch its prefix cache on (vLLM: --enable-prefix-caching)")
    if connected.notice:
        facts.append(("note", connected.notice))
    return Section("engine", tuple(facts), tuple(problems))


def _ask_twice(connected: RemoteEngine) -> Usage:
    """The usage of a prompt's repetition; the prompt is new each time, so nothing of it is cached before."""
    text = f"# {secrets.token_hex(8)}\n" + "value = first(value) + second(value)\n" * _LINES
    request = CompletionRequest("doctor/check", Prompt(text, ""), 1)
    connected.complete(request)
    return connected.complete(request).usage

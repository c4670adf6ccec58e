"""Checks the engine that the core passes its requests to: whether it answers, its model, its cache and its tokens."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from midfill.doctor.findings import Section
from protocol.errors import BadInput, MidfillError
from protocol.messages import CompletionRequest, Prompt, Usage
from protocol.settings import LOCAL_ENGINE, Settings

if TYPE_CHECKING:
    from inference.remote.engine import RemoteEngine

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
    from inference.remote.servers.address import read_engine_address

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
    """Where the program is; BadInput if it is not there. The doctor does not start it."""
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
            problems.append(
                "the engine recomputes repeated prompts: switch its prefix cache on (vLLM: --enable-prefix-caching)"
            )
    if connected.notice:
        facts.append(("note", connected.notice))
    return Section("engine", tuple(facts), tuple(problems))


def _ask_twice(connected: RemoteEngine) -> Usage:
    """The usage of a prompt's repetition; the prompt is new each time, so nothing of it is cached before."""
    text = f"# {secrets.token_hex(8)}\n" + "value = first(value) + second(value)\n" * _LINES
    request = CompletionRequest("doctor/check", Prompt(text, ""), 1)
    connected.complete(request)
    return connected.complete(request).usage

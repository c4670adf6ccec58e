"""Opens the engine that the options name: loads the local one, or connects to one in another process or starts it."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import ExitStack
from dataclasses import replace

from inference.checkpoints.checkpoint import find_local_checkpoint
from inference.checkpoints.hub import ReportProgress
from inference.engine.interface import AnyEngine, EngineInfo
from inference.loading.engine import MIN_CONTEXT_TOKENS, chars_per_token, is_here, load_engine
from inference.loading.gpus import find_gpus, find_llama_server
from inference.loading.options import EngineOptions
from inference.loading.placement import Machine, place, situation_of
from inference.remote.engine import RemoteEngine
from inference.remote.event_loop import EventLoopThread
from inference.remote.health import ServedModel
from inference.remote.replicas import Replica, Replicas
from inference.remote.servers.address import EngineAddress, read_engine_addresses
from inference.remote.servers.child import start_llama_server
from inference.remote.servers.http_connection import HttpConnection
from inference.remote.servers.interface import ModelServer, ServerFacts
from inference.remote.servers.llama_server import LlamaServer
from inference.remote.servers.openai import OpenAIServer
from inference.remote.servers.tokenizers import find_tokenizer
from inference.text.healing import wants_healing
from protocol.errors import BadInput, EngineUnavailable, MidfillError
from protocol.settings import BUNDLED_MODEL

AGREE = "those of the engine"
OTHERS_WITHIN_S = 3.0
"""Seconds that replicas have to answer after the first one; those that need longer join later."""

log = logging.getLogger(__name__)

_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)

Answers = dict[Replica, ServerFacts | MidfillError]


def open_engine(options: EngineOptions, progress: ReportProgress | None = None) -> AnyEngine:
    """The engine; the errors are those of `load_engine` or `connect`.

    With the local engine and the device `auto`, llama-server runs the model where `place` chooses it. If it cannot, the
    local engine does.
    """
    if read_engine_addresses(options.engine):
        return connect(options, progress)
    if program := _chosen_llama_server(options):
        try:
            return connect(replace(options, engine=f"llama-server={program}"), progress)
        except EngineUnavailable as error:
            log.warning("midfill's own engine runs %s, since llama-server cannot: %s", options.model, error)
    return load_engine(options, progress)


def _chosen_llama_server(options: EngineOptions) -> str:
    """The program that runs the model in place of the local engine; empty if none does."""
    if options.device != "auto" or not (gpus := find_gpus()):
        return ""
    checkpoint, program = find_local_checkpoint(options.model), find_llama_server()
    if checkpoint is None or not program:
        return ""
    gpu = gpus[0]
    placement = place(situation_of(options, checkpoint, Machine("cuda", gpu.free_bytes, gpu.capability, program)))
    if placement.runner != "llama-server":
        return ""
    log.info("%s runs on %s", options.model, placement)
    return program


def needs_download(options: EngineOptions) -> bool:
    """Whether opening the engine downloads the model; raises for faults that show without opening it."""
    return not read_engine_addresses(options.engine) and not is_here(options)


def connect(options: EngineOptions, progress: ReportProgress | None = None) -> RemoteEngine:
    """An engine that passes requests to the server of `options.engine`, or to its replicas; imports no torch.

    Raises EngineUnavailable if no server answers or accepts the key, BadModel if its tokens are not the
    tokenizer's, and BadInput for a bad address.
    """
    addresses = read_engine_addresses(options.engine)
    if not addresses:
        raise BadInput("the local engine is not a server to connect to")
    report = progress or (lambda _what, _share: None)
    with ExitStack() as opened:
        key, end_child = options.engine_key, lambda: None
        if addresses[0].program:
            report(f"starting {addresses[0]}", None)
            child = start_llama_server(addresses[0].program, options)
            opened.callback(child.close)
            addresses, key, end_child = (child.address,), child.key, child.close
        loop = EventLoopThread()
        opened.callback(loop.close)
        replicas = Replicas([Replica(address, open_server(address, key, options)) for address in addresses])
        opened.callback(lambda: loop.start(replicas.aclose()).result())
        where = ", ".join(map(str, addresses))
        report(f"connecting to {where}", None)
        answers = loop.start(_ask_all(replicas)).result()
        report("reading the tokenizer", None)
        model, tells_tokens = _admit(answers, options, loop)
        warnings = []
        if not tells_tokens:
            warnings.append(f"{where} does not tell its tokens: whether the tokenizer is its model's cannot be checked")
        if not model.heals and wants_healing(options.healing, model.tokenizer.format):
            warnings.append(f"{where} cannot force the first bytes of a text: token healing is off")
        engine = RemoteEngine(
            EngineInfo(model.name, where, model.context_tokens, chars_per_token(model.tokenizer)),
            replicas,
            model,
            loop,
            AGREE if tells_tokens else warnings[0],
            "; ".join(warnings),
            end_child,
            separate_users=options.separate_users,
        )
        opened.pop_all()
    return engine


def open_server(address: EngineAddress, key: str, options: EngineOptions) -> ModelServer:
    """The connection to the server at this address; nothing is sent yet."""
    header = options.engine_session_header
    if not _HEADER_NAME.fullmatch(header):
        raise BadInput(f"engine_session_header = {header!r}: expected the name of an HTTP header, such as X-Session-ID")
    connection = HttpConnection(address, key)
    if address.kind == "llama-server":
        return LlamaServer(connection)
    model = "" if options.model == BUNDLED_MODEL else options.model
    return OpenAIServer(connection, header, model, options.slots, options.separate_users)


async def _ask_all(replicas: Replicas) -> Answers:
    """The facts of each replica, or why there are none; waits for one, and then a moment for the others."""
    tasks = {asyncio.create_task(replica.server.facts()): replica for replica in replicas.all}
    waiting, answered = set(tasks), False
    while waiting and not answered:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        answered = any(task.exception() is None for task in done)
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=OTHERS_WITHIN_S)
        for task in late:
            task.cancel()
    answers: Answers = {}
    for task, found in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
        if isinstance(found, asyncio.CancelledError):
            found = EngineUnavailable(tasks[task].reason)
        elif isinstance(found, BaseException) and not isinstance(found, MidfillError):
            raise found
        answers[tasks[task]] = found
    return answers


def _admit(answers: Answers, options: EngineOptions, loop: EventLoopThread) -> tuple[ServedModel, bool]:
    """Let the replicas join that serve the model of the first usable one; the model, and whether all tell their tokens.

    Raises the error of a single replica, or the errors of all, if none can be used.
    """
    model, tells_tokens = None, True
    for replica, answer in answers.items():
        try:
            if isinstance(answer, MidfillError):
                raise answer
            served = model or _served_model(answer, options)
            tells_tokens &= loop.start(served.admit(replica, answer)).result()
            model = served
        except MidfillError as error:
            answers[replica] = error
            replica.leave(str(error), refused=isinstance(error, BadInput))
    if model is not None:
        return model, tells_tokens
    errors = [error for error in answers.values() if isinstance(error, MidfillError)]
    if len(errors) == 1:
        raise errors[0]
    raise type(errors[0])(f"none of the {len(errors)} replicas can be used: {'; '.join(map(str, errors))}")


def _served_model(facts: ServerFacts, options: EngineOptions) -> ServedModel:
    tokenizer = find_tokenizer(options.model, facts.model_places, options.fim_format)
    heals = facts.can_constrain and wants_healing(options.healing, tokenizer.format)
    return ServedModel(facts.name, _context_tokens(options, facts), heals, tokenizer)


def _context_tokens(options: EngineOptions, facts: ServerFacts) -> int:
    wanted = options.context_tokens or facts.context_tokens
    context_tokens = min(wanted, facts.context_tokens)
    if context_tokens < MIN_CONTEXT_TOKENS:
        raise BadInput(f"a context of {context_tokens} tokens: it has to be at least {MIN_CONTEXT_TOKENS}")
    return context_tokens

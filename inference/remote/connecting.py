"""Opens the engine that the options name: loads the local one, or connects to one in another process or starts it."""

from __future__ import annotations

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
from inference.remote.servers.address import EngineAddress, read_engine_address
from inference.remote.servers.child import start_llama_server
from inference.remote.servers.http_connection import HttpConnection
from inference.remote.servers.interface import ModelServer, ServerFacts
from inference.remote.servers.llama_server import LlamaServer
from inference.remote.servers.openai import OpenAIServer
from inference.remote.servers.tokenizers import SAMPLE, disagreement, find_tokenizer
from inference.text.healing import wants_healing
from protocol.errors import BadInput, BadModel, EngineUnavailable
from protocol.settings import BUNDLED_MODEL

AGREE = "those of the engine"

log = logging.getLogger(__name__)

_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)


def open_engine(options: EngineOptions, progress: ReportProgress | None = None) -> AnyEngine:
    """The engine; the errors are those of `load_engine` or `connect`.

    With the local engine and the device `auto`, llama-server runs the model where `place` chooses it. If it cannot, the
    local engine does.
    """
    if read_engine_address(options.engine) is not None:
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
    return read_engine_address(options.engine) is None and not is_here(options)


def connect(options: EngineOptions, progress: ReportProgress | None = None) -> RemoteEngine:
    """An engine that passes requests to the server of `options.engine`; imports no torch.

    Raises EngineUnavailable if it does not answer or refuses the key, BadModel if its tokens are not the
    tokenizer's, and BadInput for a bad address.
    """
    address = read_engine_address(options.engine)
    if address is None:
        raise BadInput("the local engine is not a server to connect to")
    report = progress or (lambda _what, _share: None)
    with ExitStack() as opened:
        key, end_child = options.engine_key, lambda: None
        if address.program:
            report(f"starting {address}", None)
            child = start_llama_server(address.program, options)
            opened.callback(child.close)
            address, key, end_child = child.address, child.key, child.close
        loop = EventLoopThread()
        opened.callback(loop.close)
        server = open_server(address, key, options)
        opened.callback(lambda: loop.start(server.aclose()).result())
        report(f"connecting to {address}", None)
        facts = loop.start(server.facts()).result()
        report("reading the tokenizer", None)
        tokenizer = find_tokenizer(options.model, facts.model_places, options.fim_format)
        context_tokens = _context_tokens(options, facts)
        theirs = loop.start(server.tokenize(SAMPLE)).result()
        if theirs is not None and (difference := disagreement(tokenizer, theirs)):
            raise BadModel(
                f"the tokenizer is not that of the model at {address}: {difference}. Name the model that the engine "
                "serves with --model"
            )
        warnings = []
        if theirs is None:
            warnings.append(
                f"{address} does not tell its tokens: whether the tokenizer is its model's cannot be checked"
            )
        wants = wants_healing(options.healing, tokenizer.format)
        if wants and not facts.can_constrain:
            warnings.append(f"{address} cannot force the first bytes of a text: token healing is off")
        engine = RemoteEngine(
            EngineInfo(facts.name, str(address), context_tokens, chars_per_token(tokenizer)),
            server,
            facts,
            tokenizer,
            loop,
            warnings[0] if theirs is None else AGREE,
            "; ".join(warnings),
            end_child,
            heals=wants and facts.can_constrain,
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


def _context_tokens(options: EngineOptions, facts: ServerFacts) -> int:
    wanted = options.context_tokens or facts.context_tokens
    context_tokens = min(wanted, facts.context_tokens)
    if context_tokens < MIN_CONTEXT_TOKENS:
        raise BadInput(f"a context of {context_tokens} tokens: it has to be at least {MIN_CONTEXT_TOKENS}")
    return context_tokens

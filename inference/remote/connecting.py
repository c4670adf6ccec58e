"""Connects to the engine that the options name, or starts it: address, facts, tokenizer, checks."""

from __future__ import annotations

from contextlib import ExitStack

from inference.checkpoints.hub import ReportProgress
from inference.engine.engine import EngineInfo
from inference.loading.engine import MIN_CONTEXT_TOKENS, chars_per_token
from inference.loading.options import EngineOptions
from inference.remote.address import EngineAddress, read_engine_address
from inference.remote.child import start_llama_server
from inference.remote.engine import RemoteEngine
from inference.remote.event_loop import EventLoopThread
from inference.remote.http_connection import HttpConnection
from inference.remote.interface import ModelServer, ServerFacts
from inference.remote.llama_server import LlamaServer
from inference.remote.openai import OpenAIServer
from inference.remote.tokenizers import SAMPLE, disagreement, find_tokenizer
from inference.text.healing import Healer, wants_healing
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadInput, BadModel
from protocol.settings import BUNDLED_MODEL

AGREE = "those of the engine"


def connect(options: EngineOptions, progress: ReportProgress | None = None) -> RemoteEngine:
    """An engine that passes requests to the server of `options.engine`; imports no torch.

    Raises EngineUnavailable if the server does not answer or refuses the key, BadModel if its tokens are not the
    tokenizer's, and BadInput for a bad address.
    """
    address = read_engine_address(options.engine)
    if address is None:
        raise BadInput("the local engine is not a server to connect to")
    report = progress or (lambda _what, _share: None)
    with ExitStack() as opened:
        key, end_child = options.engine_key, _nothing
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
        checked = _check_tokens(loop.start(server.tokenize(SAMPLE)).result(), tokenizer, address)
        warnings = [] if checked == AGREE else [checked]
        healer = Healer(tokenizer) if wants_healing(options.healing, tokenizer.format) else None
        if healer is not None and not facts.can_constrain:
            warnings.append(f"{address} cannot force the first bytes of a text: token healing is off")
            healer = None
        info = _info(options, address, facts, tokenizer)
        engine = RemoteEngine(
            info, server, facts, tokenizer, healer, loop, checked, "; ".join(filter(None, warnings)), end_child
        )
        opened.pop_all()
    return engine


def open_server(address: EngineAddress, key: str, options: EngineOptions) -> ModelServer:
    """The connection to the server at this address; nothing is sent yet."""
    connection = HttpConnection(address, key)
    if address.kind == "llama-server":
        return LlamaServer(connection)
    return OpenAIServer(connection, "" if options.model == BUNDLED_MODEL else options.model, options.slots)


def _info(options: EngineOptions, address: EngineAddress, facts: ServerFacts, tokenizer: TextTokenizer) -> EngineInfo:
    wanted = options.context_tokens or facts.context_tokens
    context_tokens = min(wanted, facts.context_tokens)
    if context_tokens < MIN_CONTEXT_TOKENS:
        raise BadInput(f"a context of {context_tokens} tokens: it has to be at least {MIN_CONTEXT_TOKENS}")
    return EngineInfo(facts.name, str(address), context_tokens, chars_per_token(tokenizer))


def _check_tokens(theirs: list[int] | None, tokenizer: TextTokenizer, address: EngineAddress) -> str:
    """AGREE, or a warning if the server cannot say its tokens; BadModel if they are others than the tokenizer's."""
    if theirs is None:
        return f"{address} does not tell its tokens: whether the tokenizer is its model's cannot be checked"
    difference = disagreement(tokenizer, theirs)
    if difference:
        raise BadModel(
            f"the tokenizer is not that of the model at {address}: {difference}. Name the model that the engine "
            "serves with --model"
        )
    return AGREE


def _nothing() -> None:
    """Ends no child: the server runs by itself."""

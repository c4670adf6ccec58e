"""The connection to an engine: opens the one that the options name, and finds the tokenizer of a server's model."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS, find_local_checkpoint, noted, open_checkpoint
from inference.checkpoints.gguf.file import find_gguf
from inference.checkpoints.gguf.metadata import read_gguf_header
from inference.checkpoints.gguf.tokenizer import gguf_tokenizer
from inference.checkpoints.hub import ReportProgress, fetch_tokenizer, is_hub_name
from inference.checkpoints.other_programs import path_of
from inference.engine.interface import AnyEngine, EngineInfo
from inference.loading.engine import MIN_CONTEXT_TOKENS, Examined, chars_per_token, examine, load_engine
from inference.loading.instead import llama_server_for
from inference.loading.options import EngineOptions, find_gpus, find_llama_server
from inference.loading.placement import Machine, place, situation_of
from inference.remote.engine import EventLoopThread, RemoteEngine
from inference.remote.llama_server import LlamaServer, start_llama_server
from inference.remote.openai import OpenAIServer
from inference.remote.server import EngineAddress, HttpConnection, ModelServer, ServerFacts, read_engine_address
from inference.text.fim import AUTO
from inference.text.healing import wants_healing
from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadInput, BadModel, EngineUnavailable, MidfillError
from protocol.settings import BUNDLED_MODEL, local_path

SAMPLE = """
def área(x: float) -> str:
\tif x >= 10_000 and not done:
        return f"{x:.2f} m²"  # 中文 — it's 123
"""
"""Text whose tokens differ between tokenizers: indentation, digits, contractions, and letters of other scripts."""
LEAD_TOKENS = 2
"""Tokens at the beginning that may differ: SentencePiece's servers put a space before the text."""


def find_tokenizer(model: str, places: tuple[str, ...], fim_format: str = AUTO) -> TextTokenizer:
    """The tokenizer of `model`; with "bundled", of the first of the server's `places` that has one.

    BadModel, with a remedy, if there is none.
    """
    if model != BUNDLED_MODEL:
        return open_tokenizer(model, fim_format)
    reasons = []
    for source in places:
        try:
            return open_tokenizer(source, fim_format)
        except MidfillError as error:
            reasons.append(str(error))
    raise BadModel(
        f"the engine's model {places[0] if places else ''!r} has no tokenizer that the core can read "
        f"({'; '.join(reasons) or 'the engine does not name its model'}): name the model's folder, or its name on the "
        "Hugging Face hub, in the setting model"
    )


def open_tokenizer(model: str, fim_format: str = AUTO) -> TextTokenizer:
    """The tokenizer of one of midfill's models, in a folder or a GGUF file, or on the hub; no weights are fetched.

    Raises BadModel if there is none.
    """
    path = BUNDLED_FOLDERS.get(model) or path_of(model) or local_path(model)
    if path is None:
        if not is_hub_name(model):
            raise BadModel(f"{model!r} is neither a folder, nor a GGUF file, nor a name on the Hugging Face hub")
        path = fetch_tokenizer(model)
    folder = path if (path / "tokenizer.json").is_file() else None
    file = find_gguf(path) if path.is_dir() and folder is None else path
    if file is None:
        return open_checkpoint(path, model).tokenizer(fim_format)  # refuses the folder, with the reason
    if folder is None:
        return gguf_tokenizer(read_gguf_header(file, tensors=False), fim_format)
    notes = _notes_of(folder / "config.json")
    wanted = notes.get("fim_format", AUTO) if fim_format == AUTO else fim_format
    return read_tokenizer(folder / "tokenizer.json", wanted, fragments_suffice=notes.get("fragments_suffice"))


def disagreement(tokenizer: TextTokenizer, theirs: list[int]) -> str:
    """How the server's tokens of SAMPLE differ from the tokenizer's; empty if they agree."""
    ours = tokenizer.encode(SAMPLE).tolist()
    compared = len(ours) - LEAD_TOKENS
    if theirs[-compared:] == ours[LEAD_TOKENS:]:
        return ""
    return f"for one text the engine has {len(theirs)} tokens {theirs[:8]}…, and the tokenizer {len(ours)} {ours[:8]}…"


def _notes_of(config: Path) -> Mapping[str, Any]:
    """The notes of `midfill train` about the model; empty without a readable config."""
    try:
        parsed = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted(parsed) if isinstance(parsed, dict) else {}


AGREE = "those of the engine"

log = logging.getLogger(__name__)

_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)


class EngineOpener:
    """Opens the engine of these options, the first time with what has been read of the model to examine it."""

    def __init__(self, options: EngineOptions) -> None:
        """Raises the errors of the model that show without opening it."""
        self._options = options
        self._examined: Examined | None = None
        self.needs_download = False
        """Whether opening the engine downloads the model."""
        if read_engine_address(options.engine) is not None:
            return
        try:
            self._examined = examine(options)
        except BadModel as error:
            if not llama_server_for(options.model, str(error), options.fim_format):
                raise
        else:
            self.needs_download = self._examined is None

    def open(self, progress: ReportProgress | None = None) -> AnyEngine:
        """As `open_engine`."""
        examined, self._examined = self._examined, None
        return open_engine(self._options, progress, examined)


def open_engine(options: EngineOptions, progress: ReportProgress | None = None, examined: Examined | None = None) -> AnyEngine:
    """The engine; the errors are those of `load_engine`, which also takes what was `examined`, or `connect`.

    With the local engine and the device `auto`, llama-server runs the model where `place` chooses it. If it cannot, the
    local engine does. llama-server also runs what the local engine refuses.
    """
    if read_engine_address(options.engine) is not None:
        return connect(options, progress)
    try:
        if program := _chosen_llama_server(options):
            try:
                return connect(replace(options, engine=f"llama-server={program}"), progress)
            except EngineUnavailable as error:
                log.warning("midfill's own engine runs %s, since llama-server cannot: %s", options.model, error)
        return load_engine(options, progress, examined)
    except BadModel as error:
        program = llama_server_for(options.model, str(error), options.fim_format)
        if not program:
            raise
        log.info("llama-server runs %s, since midfill's own engine does not: %s", options.model, error)
        return connect(replace(options, engine=f"llama-server={program}"), progress)


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
        key, end_child, check = options.engine_key, lambda: None, lambda: None
        if address.program:
            report(f"starting {address}", None)
            child = start_llama_server(address.program, options)
            opened.callback(child.close)
            address, key, end_child, check = child.address, child.key, child.close, child.check
        loop = EventLoopThread()
        opened.callback(loop.close)
        server = open_server(address, key, options, check)
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
                "serves in the setting model"
            )
        warnings = []
        if theirs is None:
            warnings.append(f"{address} does not tell its tokens: whether the tokenizer is its model's cannot be checked")
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
        )
        opened.pop_all()
    return engine


def open_server(
    address: EngineAddress, key: str, options: EngineOptions, check: Callable[[], None] = lambda: None
) -> ModelServer:
    """The connection to the server at this address, with `HttpConnection`'s `check`; nothing is sent yet."""
    header = options.engine_session_header
    if not _HEADER_NAME.fullmatch(header):
        raise BadInput(f"engine_session_header = {header!r}: expected the name of an HTTP header, such as X-Session-ID")
    connection = HttpConnection(address, key, check)
    if address.kind == "llama-server":
        return LlamaServer(connection)
    model = "" if options.model == BUNDLED_MODEL else options.model
    return OpenAIServer(connection, header, model, options.slots)


def _context_tokens(options: EngineOptions, facts: ServerFacts) -> int:
    wanted = options.context_tokens or facts.context_tokens
    context_tokens = min(wanted, facts.context_tokens)
    if context_tokens < MIN_CONTEXT_TOKENS:
        raise BadInput(f"a context of {context_tokens} tokens: it has to be at least {MIN_CONTEXT_TOKENS}")
    return context_tokens

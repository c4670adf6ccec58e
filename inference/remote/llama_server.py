"""llama-server: starts it as a child of the core, and speaks its own HTTP interface with token ids in fixed slots."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil

from inference.checkpoints.checkpoint import find_local_gguf
from inference.checkpoints.gguf.metadata import read_gguf_header, state_bytes
from inference.loading.options import EngineOptions
from inference.remote import supervisor
from inference.remote.server import (
    EndReason,
    EngineAddress,
    GenerationQuery,
    HttpConnection,
    NotServed,
    Piece,
    ServerFacts,
    Token,
    Tokenized,
)
from protocol.errors import BadInput, BadModel, EngineUnavailable
from protocol.messages import Sampling
from protocol.rendezvous import runtime_folder

DEFAULT_SLOTS = 4
BATCH_TOKENS = 512
"""Tokens per step of a prefill: llama-server notices a closed request between two steps."""
CHECKPOINT_BYTES = 512 * 2**20
CHECKPOINTS = (4, 32)
"""Fewest and most of a slot. A keystroke makes two, and a deletion goes back to one."""
CHECKPOINT_TOKENS = 128
"""A full slot first loses copies nearer than this to an older one, so that keys leave an anchor's copy in place."""
COPY_TOKENS = 4
"""Before the end of each prompt, where llama-server copies the states (`checkpoint_offsets` in its server-context.cpp)."""
LISTENS_WITHIN_S = 60.0
START_POLL_S = 0.05
END_S = 8.0
MAX_SOCKET_BYTES = 100  # of a Unix socket's path; macOS allows 103

log = logging.getLogger(__name__)


class LlamaServerChild:
    """A running llama-server that only this core can use.

    Other users of the machine see its command line and may take a port before it does, or once it has ended. So it
    listens at a Unix socket in the private runtime folder; where there are none, whoever listens at its port has to be
    the child. Nothing is sent before that is known, or after the child has ended.
    """

    def __init__(self, process: subprocess.Popen[bytes], address: EngineAddress, key: str) -> None:
        self.address = address
        self.key = key
        self._process = process

    def close(self) -> None:
        """End the server, and wait until it has given its memory back."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            log.warning("llama-server (process %d) does not end", self._process.pid)
            self._process.kill()

    def check(self) -> None:
        """Raise EngineUnavailable if the server has ended."""
        status = self._process.poll()
        if status is not None:
            raise EngineUnavailable(f"llama-server ended with status {status}: the core's log has its reason")

    def wait_until_it_listens(self) -> None:
        """Return once the server listens, and perhaps still loads; EngineUnavailable if it ends or does not."""
        deadline = time.monotonic() + LISTENS_WITHIN_S
        while time.monotonic() < deadline:
            self.check()
            if self._listens():
                return
            time.sleep(START_POLL_S)
        raise EngineUnavailable(f"llama-server does not listen at {self.address} within {LISTENS_WITHIN_S:.0f} s")

    def _listens(self) -> bool:
        if self.address.socket:
            with socket.socket(socket.AF_UNIX) as probe:
                return probe.connect_ex(self.address.socket) == 0
        with suppress(psutil.Error):  # it has just ended
            process, port = psutil.Process(self._process.pid), urlsplit(self.address.url).port
            return any(
                found.status == psutil.CONN_LISTEN and found.laddr.port == port
                for each in (process, *process.children(recursive=True))
                for found in each.net_connections("tcp")
            )
        return False


def start_llama_server(program: str, options: EngineOptions) -> LlamaServerChild:
    """Start `program`, found on the PATH or by its path, with the GGUF file `options.model`.

    llama-server itself chooses as many GPU layers as fit. BadInput or BadModel if the program or the file is missing.
    """
    found = shutil.which(program)
    if found is None:
        raise BadInput(f"there is no program {program!r}: install llama.cpp, or set engine to llama-server=PATH")
    file = gguf_file(options.model)
    states = state_bytes(read_gguf_header(file, tensors=False))
    key, address = secrets.token_urlsafe(24), _free_address()
    parts = urlsplit(address.url)
    place = [address.socket] if address.socket else [f"{parts.hostname}", "--port", f"{parts.port}"]
    command = [found, "--model", str(file), "--host", *place]
    process = subprocess.Popen(
        [sys.executable, "-I", supervisor.__file__, address.socket, *command],
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno(),  # the core's log
        env={**os.environ, **child_environment(options, states), "LLAMA_API_KEY": key},
    )
    child = LlamaServerChild(process, address, key)
    try:
        child.wait_until_it_listens()
    except EngineUnavailable:
        child.close()
        raise
    return child


def child_environment(options: EngineOptions, states: int) -> dict[str, str]:
    """llama-server's options as variables: other than on a command line, it ignores those that it does not know.

    `states` is the size of a copy of the model's recurrent states; a slot keeps as many as CHECKPOINT_BYTES hold.
    """
    slots = options.slots or DEFAULT_SLOTS
    chosen = {
        "LLAMA_ARG_N_PARALLEL": slots,
        "LLAMA_ARG_CTX_SIZE": slots * options.context_tokens,
        "LLAMA_ARG_KV_UNIFIED": 0,  # each slot has a whole context
        "LLAMA_ARG_BATCH": BATCH_TOKENS,
        "LLAMA_ARG_CACHE_RAM": 0,  # used only where the server chooses the slot
        "LLAMA_ARG_UI": 0,
    }
    if states:
        fewest, most = CHECKPOINTS
        chosen["LLAMA_ARG_CTX_CHECKPOINTS"] = max(fewest, min(most, CHECKPOINT_BYTES // states))
        chosen["LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT"] = CHECKPOINT_TOKENS
    if options.threads:
        chosen["LLAMA_ARG_THREADS"] = options.threads
    return {name: str(value) for name, value in chosen.items()}


def gguf_file(model: str) -> Path:
    """The GGUF file that `model` names; BadModel if there is none."""
    file = find_local_gguf(model)
    if file is None:
        raise BadModel(f"llama-server needs a GGUF file, and {model!r} is none and has none: name one in the setting model")
    return file


def _free_address() -> EngineAddress:
    """An address for a server: a Unix socket, or a free port where the system has none or the path is too long."""
    path = str(runtime_folder() / f"llama-{secrets.token_hex(4)}.sock")
    if os.name == "posix" and len(os.fsencode(path)) <= MAX_SOCKET_BYTES:
        return EngineAddress("llama-server", "http://localhost", socket=path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return EngineAddress("llama-server", f"http://127.0.0.1:{probe.getsockname()[1]}")


LOADING_S = 300.0
"""Longest wait for a server that says that it loads its model."""
POLL_S = 0.2
LOADING_STATUS = 503

_REASONS: dict[str, EndReason] = {"limit": "length", "word": "stop"}
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class _Settings(msgspec.Struct, frozen=True):
    n_ctx: int


class _Props(msgspec.Struct, frozen=True):
    total_slots: int
    default_generation_settings: _Settings
    model_path: str = ""
    model_alias: str = ""


class _Timings(msgspec.Struct, frozen=True):
    cache_n: int = 0
    predicted_n: int = 0


class _Top(msgspec.Struct, frozen=True):
    id: int
    logprob: float | None = None  # JSON has no infinity


class _Probabilities(msgspec.Struct, frozen=True):
    id: int
    logprob: float | None = None
    top_logprobs: tuple[_Top, ...] = ()


class _Progress(msgspec.Struct, frozen=True):
    cache: int = 0
    processed: int = 0
    total: int = 0


class _StreamEvent(msgspec.Struct, frozen=True):
    """One event of a stream: prefill progress, a token, or the end."""

    content: str = ""
    tokens: tuple[int, ...] = ()
    stop: bool = False
    stop_type: str = ""
    timings: _Timings | None = None
    completion_probabilities: tuple[_Probabilities, ...] = ()
    prompt_progress: _Progress | None = None
    error: dict[str, Any] | None = None


class LlamaServer:
    """One llama-server; see `ModelServer`."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    async def facts(self) -> ServerFacts:
        props = await self._props()
        file = props.model_path
        return ServerFacts(
            name=props.model_alias or props.model_path,
            model_places=tuple(dict.fromkeys(filter(None, (file, props.model_alias)))),
            context_tokens=props.default_generation_settings.n_ctx,
            capacity=props.total_slots,
            slots=props.total_slots,
            copy_tokens=COPY_TOKENS if _keeps_states(file) else 0,
        )

    async def tokenize(self, text: str) -> list[int] | None:
        body = {"content": text, "add_special": False, "parse_special": False}
        return (await self._connection.post("/tokenize", body, Tokenized)).tokens

    async def stream(self, query: GenerationQuery) -> AsyncGenerator[Piece]:
        async with self._connection.events("/completion", _body(query)) as events:
            reported = 0
            async for data in events:
                event = self._connection.decode(data, _StreamEvent)
                if event.error is not None:
                    raise _stream_error(f"{self._connection.address}: {event.error.get('message', event.error)}", event)
                piece = _piece(event, reported)
                reported += len(piece.tokens)
                yield piece

    async def erase(self, slot: int) -> bool:
        try:
            await self._connection.post(f"/slots/{slot}?action=erase", {}, dict)
        except (NotServed, BadInput):  # it was started without a folder for slots
            return False
        return True

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def _props(self) -> _Props:
        """The server's properties, once it has loaded its model."""
        deadline = asyncio.get_running_loop().time() + LOADING_S
        while True:
            try:
                return await self._connection.get("/props", _Props)
            except NotServed as error:
                if error.status != LOADING_STATUS or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(POLL_S)


def _keeps_states(file: str) -> bool:
    """Whether the model has recurrent states; False for a file of another machine."""
    try:
        return state_bytes(read_gguf_header(Path(file), tensors=False)) > 0
    except BadModel:
        return False


def _body(query: GenerationQuery) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt": query.token_ids.tolist(),
        "n_predict": query.max_tokens,
        "cache_prompt": query.reuse,
        **_sampling(query.sampling),
        "n_probs": query.top if query.max_tokens else 0,
        "stop": query.stops,
        "stream": True,
        "return_tokens": True,
        "return_progress": True,  # a closed request ends at the next progress, not at the end of the prefill
        "timings_per_token": True,  # so that the cached tokens are known even if the request is closed early
    }
    if query.slot is not None:
        body["id_slot"] = query.slot
    if query.typed is not None:
        body["grammar"] = grammar(query.typed)
    return body


def _sampling(sampling: Sampling | None) -> dict[str, Any]:
    if sampling is None:
        return {"samplers": ["top_k"], "top_k": 1}
    fields = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    return {"samplers": ["top_k", "temperature", "top_p"], "seed": sampling.seed, **fields}


def grammar(typed: str) -> str:
    """A GBNF grammar of all texts that begin with `typed`."""
    escaped = "".join(_ESCAPES.get(character, character) for character in typed)
    return f'root ::= "{escaped}" [^\\x00]*'


def _piece(event: _StreamEvent, reported: int) -> Piece:
    """The event after `reported` tokens. The server omits the events of tokens that end within a character."""
    cached = event.prompt_progress.cache if event.prompt_progress else event.timings.cache_n if event.timings else None
    tokens = () if event.stop or event.prompt_progress else _tokens(event)  # neither reports a token
    omitted = event.timings.predicted_n - reported - len(tokens) if event.timings and tokens else 0
    return Piece(
        text=event.content,
        tokens=(Token(None, None),) * omitted + tokens,
        end=_REASONS.get(event.stop_type, "eos") if event.stop else None,
        cached_tokens=cached,
        prefilled=_prefilled(event.prompt_progress),
    )


def _prefilled(progress: _Progress | None) -> tuple[int, int] | None:
    """The progress of a prompt that is not resident as a whole yet."""
    if progress is None or progress.processed >= progress.total:
        return None
    return progress.processed, progress.total


def _tokens(event: _StreamEvent) -> tuple[Token, ...]:
    known = {found.id: found for found in event.completion_probabilities}
    return tuple(_token(id_, known.get(id_)) for id_ in event.tokens)


def _token(id_: int, found: _Probabilities | None) -> Token:
    if found is None:
        return Token(id_, None)
    top = tuple((other.id, other.logprob) for other in found.top_logprobs if other.logprob is not None)
    return Token(id_, found.logprob, top)


def _stream_error(message: str, event: _StreamEvent) -> Exception:
    """The error for an event that ends a stream."""
    code = (event.error or {}).get("code")
    return BadInput(message) if code in (400, 413) else EngineUnavailable(message)

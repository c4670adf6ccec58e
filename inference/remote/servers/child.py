"""Starts llama-server as a child of the core, with slots and context for midfill, and ends it with the core."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2

from inference.checkpoints.local_models.names import path_of
from inference.loading.options import EngineOptions
from inference.remote.servers import supervisor
from inference.remote.servers.address import EngineAddress
from protocol.errors import BadInput, BadModel, EngineUnavailable

DEFAULT_SLOTS = 4
BATCH_TOKENS = 512
"""Tokens per step of a prefill: llama-server notices a closed request between two steps."""
LISTENS_WITHIN_S = 60.0
POLL_S = 0.05
END_S = 8.0

log = logging.getLogger(__name__)


class LlamaServerChild:
    """A running llama-server that only this core can use."""

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

    def wait_until_it_listens(self) -> None:
        """Return once the server answers; EngineUnavailable if it ends or stays silent."""
        deadline = time.monotonic() + LISTENS_WITHIN_S
        while time.monotonic() < deadline:
            status = self._process.poll()
            if status is not None:
                raise EngineUnavailable(f"llama-server ended with status {status}: the core's log has its reason")
            try:
                httpx2.get(f"{self.address.url}/health", timeout=1, trust_env=False)
            except httpx2.TransportError:
                time.sleep(POLL_S)
            else:
                return  # it may still load its model
        raise EngineUnavailable(f"llama-server does not listen within {LISTENS_WITHIN_S:.0f} s")


def start_llama_server(program: str, options: EngineOptions) -> LlamaServerChild:
    """Start `program`, found on the PATH or by its path, with the GGUF file `options.model`.

    llama-server itself chooses as many GPU layers as fit. BadInput or BadModel if the program or the file is missing.
    """
    found = shutil.which(program)
    if found is None:
        raise BadInput(f"there is no program {program!r}: install llama.cpp, or set --engine llama-server=PATH")
    file = gguf_file(options.model)
    port = _free_port()
    key = secrets.token_urlsafe(24)
    command = [found, "--model", str(file), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-I", supervisor.__file__, *command],
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno(),  # the core's log
        env={**os.environ, **child_environment(options), "LLAMA_API_KEY": key},
    )
    child = LlamaServerChild(process, EngineAddress("llama-server", f"http://127.0.0.1:{port}"), key)
    try:
        child.wait_until_it_listens()
    except EngineUnavailable:
        child.close()
        raise
    return child


def child_environment(options: EngineOptions) -> dict[str, str]:
    """llama-server's options as variables: other than on a command line, it ignores those that it does not know."""
    slots = options.slots or DEFAULT_SLOTS
    chosen = {
        "LLAMA_ARG_N_PARALLEL": slots,
        "LLAMA_ARG_CTX_SIZE": slots * options.context_tokens,
        "LLAMA_ARG_KV_UNIFIED": 0,  # each slot has a whole context
        "LLAMA_ARG_BATCH": BATCH_TOKENS,
        "LLAMA_ARG_CACHE_RAM": 0,  # used only where the server chooses the slot
        "LLAMA_ARG_UI": 0,
    }
    if options.threads:
        chosen["LLAMA_ARG_THREADS"] = options.threads
    return {name: str(value) for name, value in chosen.items()}


def gguf_file(model: str) -> Path:
    """The GGUF file that `model` names: itself, or the only one in its folder; BadModel if there is none."""
    named = path_of(model)  # another program's model, a GGUF file whatever its name
    path = named or Path(model).expanduser()
    files = (
        [path]
        if named is not None and path.is_file()
        else sorted(path.glob("*.gguf"))
        if path.is_dir()
        else [path]
        if path.suffix == ".gguf"
        else []
    )
    if len(files) != 1 or not files[0].is_file():
        raise BadModel(f"llama-server needs a GGUF file, and {model!r} is none and has none: name one with --model")
    return files[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port

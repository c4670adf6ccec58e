"""Runs llama.cpp's server as the peer of a bench, and sends `/infill` requests as its editor plugins do."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.messages import Prompt

START_SECONDS = 120.0
END_SECONDS = 60.0
REQUEST_SECONDS = 600.0  # on a machine that other processes keep busy
CONTEXT_TOKENS = 8192  # of the batch too: `/infill` cuts the prefix to three quarters of it and the suffix to one


def quantize(program: Path, source: Path, target: Path, kind: str) -> None:
    """Let llama-quantize write `target` from `source`."""
    subprocess.run([program, source, target, kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Infill:
    """The answer to one request, and its cost."""

    text: str
    milliseconds: float  # from the request to its answer, on this side
    prompt_tokens: int
    recomputed_tokens: int
    generated_tokens: int


class LlamaServer:
    """A running server. Each request has a connection of its own: the server ends idle ones after seconds."""

    def __init__(self, port: int) -> None:
        self._port = port

    def infill(self, prompt: Prompt, max_tokens: int, stop: Sequence[str] = ()) -> Infill:
        """Fill the gap between prefix and suffix greedily.

        As in the plugins, the cursor's line has a field of its own, behind the prefix.
        """
        cut = prompt.prefix.rfind("\n") + 1
        body = {
            "input_prefix": prompt.prefix[:cut],
            "prompt": prompt.prefix[cut:],
            "input_suffix": prompt.suffix,
            "n_predict": max_tokens,
            "temperature": 0.0,
            "top_k": 1,
            "samplers": ["top_k"],
            "cache_prompt": True,
            "stop": list(stop),
        }
        since = time.perf_counter()
        answer = self.post("/infill", body)
        milliseconds = (time.perf_counter() - since) * 1000
        timings = answer["timings"]
        return Infill(
            text=answer["content"],
            milliseconds=milliseconds,
            prompt_tokens=answer["tokens_evaluated"],
            recomputed_tokens=timings["prompt_n"],
            generated_tokens=timings["predicted_n"],
        )

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text, with marker names as plain text."""
        answer = self.post("/tokenize", {"content": text, "add_special": False, "parse_special": False})
        return [int(token_id) for token_id in answer["tokens"]]

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The parsed answer; RuntimeError with the server's message if it refuses."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=REQUEST_SECONDS)
        with closing(connection):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{path}: HTTP {response.status}: {text[:500]!r}")
        return json.loads(text)


@contextmanager
def run_llama_server(command: Sequence[str], model: Path, threads: int, *, spm: bool) -> Iterator[LlamaServer]:
    """Run `command` with `model`, configured for one local user and warmed up; it ends with the block."""
    port = free_port()
    options = ["--model", str(model), "--host", "127.0.0.1", "--port", str(port), "--parallel", "1"]
    options += ["--ctx-size", str(CONTEXT_TOKENS), "--batch-size", str(CONTEXT_TOKENS)]
    options += ["--threads", str(threads), "--threads-batch", str(threads), *(["--spm-infill"] if spm else [])]
    with server_process([*command, *options], port, "/health", START_SECONDS):
        yield LlamaServer(port)


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server_process(
    command: Sequence[str], port: int, path: str, patience_s: float, variables: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server that answers at the port, from its first answer at `path` to the end of the block.

    RuntimeError, with the end of its output, if it ends before or takes longer than `patience_s` seconds.
    """
    deadline = time.monotonic() + patience_s
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(variables or {})})
        try:
            while not _answers(port, path):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read()[-4000:].decode(errors="replace")
                    raise RuntimeError(f"{command} ({process.returncode}) was not ready within {patience_s} s:\n{said}")
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int, path: str) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=1)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False

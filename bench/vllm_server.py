"""Runs vLLM as the peer of a bench, and sends rendered FIM prompts as Continue does."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
from llama_server import free_port, server_process

START_SECONDS = 900.0  # it may compile kernels
REQUEST_SECONDS = 600.0
CONTEXT_TOKENS = 4096
KV_GIGABYTES = 1
BLOCK_TOKENS = 32  # the smallest block that its attention for CPUs takes
_DATA = "data: "
_LAST = "[DONE]"


@dataclass(frozen=True, slots=True)
class Streamed:
    """A completion that was streamed to its end, and its cost."""

    text: str
    milliseconds: float
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int


class VllmServer:
    """A running server, asked over one connection that is kept."""

    def __init__(self, client: httpx.Client, url: str, model: str) -> None:
        self.url = url
        self._client = client
        self._model = model

    def complete(self, prompt: str, max_tokens: int, stop: list[str]) -> Streamed:
        """Continue the prompt greedily; the markers in it are special tokens to vLLM."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "stop": stop,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        since, parts, usage = time.perf_counter(), [], {}
        with self._client.stream("POST", f"{self.url}/v1/completions", json=body) as response:
            if not response.is_success:
                raise RuntimeError(f"vLLM: HTTP {response.status_code}: {response.read()[:500]!r}")
            for line in response.iter_lines():
                if line.startswith(_DATA) and line != _DATA + _LAST:
                    event: dict[str, Any] = json.loads(line.removeprefix(_DATA))
                    parts += [choice["text"] for choice in event["choices"]]
                    usage = event.get("usage") or usage
        milliseconds = (time.perf_counter() - since) * 1000
        details = usage.get("prompt_tokens_details") or {}
        return Streamed(
            text="".join(parts),
            milliseconds=milliseconds,
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=details.get("cached_tokens") or 0,
            generated_tokens=usage["completion_tokens"],
        )


def vllm_version(python: Path) -> str:
    """The version of vLLM in the environment of `python`."""
    command = [python, "-c", "import vllm; print(vllm.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def run_vllm(python: Path, model: Path, threads: int) -> Iterator[VllmServer]:
    """Run the vLLM of a Python environment, with the model of a folder and its prefix cache; it ends with the block."""
    port = free_port()
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", str(CONTEXT_TOKENS), "--block-size", str(BLOCK_TOKENS)]
    command += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    settings = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(KV_GIGABYTES),
        "OMP_NUM_THREADS": str(threads),
    }
    with (
        httpx.Client(timeout=REQUEST_SECONDS) as client,
        server_process(command, port, "/v1/models", START_SECONDS, settings),
    ):
        yield VllmServer(client, f"http://127.0.0.1:{port}", str(model))

"""A real llama-server and a real vLLM with the model `tiny`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.llama_server import free_port, quantize, server_process
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.loading.options import EngineOptions
from inference.remote.llama_server import LlamaServerChild, start_llama_server
from midfill_lab.recipe.to_gguf import write_gguf
from protocol.settings import Settings

SLOTS = 2
EXACT = {"LLAMA_ARG_FLASH_ATTN": "off", "LLAMA_ARG_CACHE_TYPE_K": "f32", "LLAMA_ARG_CACHE_TYPE_V": "f32"}
"""llama.cpp's flash attention computes one token otherwise than many, so that logits depend on what is resident."""
VLLM_BLOCK_TOKENS = 32
VLLM_STARTS_WITHIN_S = 900  # it compiles kernels before it answers


@pytest.fixture(scope="session")
def engines_folder() -> Path:
    """What `make test-engines` has built and installed."""
    folder = os.environ.get("TEST_ENGINES_FOLDER")
    if not folder:
        pytest.skip("TEST_ENGINES_FOLDER names no folder: run `make test-engines`")
    return Path(folder)


@pytest.fixture(scope="session")
def llama_server_program(engines_folder: Path) -> Path:
    """The program that `make test-engines` has built."""
    return engines_folder / "llama.cpp" / "bin" / "llama-server"


@pytest.fixture(scope="session")
def vllm_url(engines_folder: Path) -> Iterator[str]:
    """The address of a vLLM on this machine's CPU that serves the model `tiny`."""
    port = free_port()
    command = [str(engines_folder / "vllm" / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(BUNDLED_FOLDERS["tiny"]), "--served-model-name", "tiny", "--enforce-eager"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", "4096", "--block-size", str(VLLM_BLOCK_TOKENS), "--enable-prompt-tokens-details"]
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with server_process(command, port, "/health", VLLM_STARTS_WITHIN_S, offline):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory, engines_folder: Path) -> Path:
    """The model `tiny` in float32, for llama.cpp."""
    folder = tmp_path_factory.mktemp("gguf")
    write_gguf("tiny", folder / "bf16.gguf")
    quantize(engines_folder / "llama.cpp" / "bin" / "llama-quantize", folder / "bf16.gguf", folder / "tiny.gguf", "F32")
    return folder / "tiny.gguf"


@pytest.fixture
def llama_server(llama_server_program: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaServerChild]:
    """llama-server, started as the core starts it where there are no Unix sockets: it has a URL. It computes EXACT."""
    monkeypatch.setattr("inference.remote.llama_server.MAX_SOCKET_BYTES", 0)
    for variable, value in EXACT.items():
        monkeypatch.setenv(variable, value)
    options = EngineOptions(str(tiny_gguf), context_tokens=4096, slots=SLOTS, threads=1)
    child = start_llama_server(str(llama_server_program), options)
    yield child
    child.close()


@pytest.fixture
def settings(llama_server: LlamaServerChild) -> Settings:
    """Settings for this server; the model's folder has its tokenizer."""
    return Settings(
        model=str(BUNDLED_FOLDERS["tiny"]),
        engine=f"llama-server={llama_server.address.url}",
        engine_key=llama_server.key,
        healing="on",
        prefix_tokens=1024,
        suffix_tokens=512,
        max_tokens=12,
    )

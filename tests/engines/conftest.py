"""A real llama-server with the model `tiny`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.loading.options import EngineOptions
from inference.remote.child import LlamaServerChild, start_llama_server
from inference.training.interchange.to_gguf import write_gguf
from protocol.settings import Settings

SLOTS = 2


@pytest.fixture(scope="session")
def llama_server_program() -> Path:
    """The program that `make test-engines` has built."""
    folder = os.environ.get("TEST_ENGINES_FOLDER")
    if not folder:
        pytest.skip("TEST_ENGINES_FOLDER names no folder: run `make test-engines`")
    return Path(folder) / "llama.cpp" / "bin" / "llama-server"


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model `tiny` in bfloat16, for llama.cpp."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf("tiny", path)
    return path


@pytest.fixture
def llama_server(llama_server_program: Path, tiny_gguf: Path) -> Iterator[LlamaServerChild]:
    """llama-server, started as the core starts it."""
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

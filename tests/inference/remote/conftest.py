"""Fake servers, and engines that are connected to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from inference.loading.options import EngineOptions
from inference.remote.connecting import connect
from inference.remote.engine import RemoteEngine
from inference.text.tokenization import TextTokenizer, read_tokenizer
from tests.inference.remote.fake_servers import FakeServer, llama_server, openai_server, serving
from tests.inference.tiny import write_tokenizer

Connect = Callable[..., RemoteEngine]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session")
def folder_tokenizer(tokenizer_folder: Path) -> TextTokenizer:
    return read_tokenizer(tokenizer_folder / "tokenizer.json")


@pytest.fixture
def server(folder_tokenizer: TextTokenizer, tokenizer_folder: Path) -> FakeServer:
    return FakeServer(folder_tokenizer, model=str(tokenizer_folder))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def connect_llama(server: FakeServer, opened: ExitStack) -> Connect:
    """Connects an engine to the fake llama-server."""
    return lambda **options: _connected(opened, f"llama-server={opened.enter_context(serving(llama_server(server)))}", options)


@pytest.fixture
def connect_openai(server: FakeServer, opened: ExitStack) -> Connect:
    """Connects an engine to the fake OpenAI server."""
    return lambda **options: _connected(opened, f"openai={opened.enter_context(serving(openai_server(server)))}/v1", options)


def _connected(opened: ExitStack, address: str, options: dict[str, object]) -> RemoteEngine:
    engine = connect(EngineOptions(**{"engine": address, "healing": "on", **options}))  # type: ignore[arg-type]
    opened.callback(engine.close)
    return engine

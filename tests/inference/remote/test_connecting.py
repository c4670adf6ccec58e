"""What is checked before the first request: address, answer, key, model, tokens; and that no torch is imported."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from inference.loading.options import EngineOptions
from inference.remote import llama_server as llama_server_module
from inference.remote.connecting import connect, open_tokenizer
from inference.remote.server import EngineAddress, read_engine_address
from protocol.errors import BadInput, BadModel, EngineUnavailable
from protocol.messages import CompletionRequest, Prompt
from tests.inference.remote.conftest import Connect
from tests.inference.remote.fake_servers import FakeServer, llama_server, openai_server, serving
from tests.inference.tiny import ROOT
from tests.inference.tiny_gguf import tokenizer_fields, write_file


@pytest.mark.parametrize(
    ("engine", "kind", "url", "program"),
    [
        ("llama-server=http://gpu:8080/", "llama-server", "http://gpu:8080", ""),
        ("openai=https://gpu/v1/", "openai", "https://gpu", ""),
        ("openai=http://[::1]:8000", "openai", "http://[::1]:8000", ""),
        ("llama-server", "llama-server", "", "llama-server"),
        ("llama-server=/opt/bin/llama-server", "llama-server", "", "/opt/bin/llama-server"),
    ],
)
def test_addresses(engine: str, kind: str, url: str, program: str) -> None:
    assert read_engine_address("local") is None
    assert read_engine_address(engine) == EngineAddress(kind, url, program)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "engine",
    ["", "vllm", "openai", "openai=", "openai=gpu:8000", "openai=ftp://gpu", "llama-server=http://", "ollama=http://a",
     "openai=http://a,", "openai=http://a:port", "openai=http://user:secret@gpu", "openai=http://gpu?x=1"],
)  # fmt: skip
def test_what_is_no_address_is_named(engine: str) -> None:
    with pytest.raises(BadInput, match="engine = "):
        read_engine_address(engine)


@pytest.mark.parametrize("kind", ["openai", "llama-server"])
def test_several_servers_are_refused_and_a_router_is_named(kind: str) -> None:
    engine = f"{kind}=http://gpu-1:8000,http://gpu-2:8000"
    with pytest.raises(BadInput, match=rf"engine = '{engine}': expected one URL.*vllm-router or HAProxy.*teams\.md"):
        read_engine_address(engine)


@pytest.mark.parametrize("place", ["server", "linked", "~nosuchuser/x"])
def test_a_program_keeps_its_name(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server").touch()
    (tmp_path / "linked").symlink_to("server")
    monkeypatch.chdir(tmp_path)  # a folder of anybody's, which a name on the PATH has nothing to do with
    assert read_engine_address(f"llama-server={place}") == EngineAddress("llama-server", program=place)


def test_facts(connect_llama: Connect, server: FakeServer) -> None:
    engine = connect_llama()
    assert engine.info.context_tokens == server.context
    assert engine.capacity == server.slots
    assert engine.info.device.startswith("llama-server at http://127.0.0.1:")
    assert connect_llama(context_tokens=128).info.context_tokens == 128


def test_a_server_that_loads_its_model_is_waited_for(
    connect_llama: Connect, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_server_module, "POLL_S", 0.001)
    server.loading = 3
    connect_llama()
    assert server.loading == 0


@pytest.mark.parametrize("kind", ["llama", "openai"])
def test_a_wrong_key_is_named_and_the_right_one_is_sent(kind: str, server: FakeServer, request: pytest.FixtureRequest) -> None:
    server.key = "right"
    connect_to: Connect = request.getfixturevalue(f"connect_{kind}")
    with pytest.raises(EngineUnavailable, match="engineKey"):
        connect_to(engine_key="wrong")
    connect_to(engine_key="right")
    assert "right" not in repr(EngineOptions(engine_key="right"))


@pytest.mark.parametrize("kind", ["llama-server", "openai"])
def test_an_unreachable_server_is_named(kind: str, server: FakeServer) -> None:
    with serving(llama_server(server)) as url:
        pass
    with pytest.raises(EngineUnavailable, match=f"{kind} at {url} cannot be reached"):
        connect(EngineOptions(engine=f"{kind}={url}"))


def test_another_kind_of_server_is_named(server: FakeServer, opened: ExitStack) -> None:
    url = opened.enter_context(serving(openai_server(server)))
    with pytest.raises(EngineUnavailable, match="status 404"):
        connect(EngineOptions(engine=f"llama-server={url}"))


def test_other_tokens_are_refused(connect_llama: Connect, server: FakeServer) -> None:
    server.tokens_of = lambda text: list(text.encode())
    with pytest.raises(BadModel, match="is not that of the model"):
        connect_llama()


def test_tokens_with_a_leading_space_are_the_same(connect_llama: Connect, server: FakeServer) -> None:
    server.tokens_of = lambda text: [7, *server.tokenizer.encode(text)]
    connect_llama()


def test_tokens_that_cannot_be_checked_are_told(server: FakeServer, opened: ExitStack) -> None:
    url = opened.enter_context(serving(openai_server(server, tokenizes=False)))
    engine = connect(EngineOptions(engine=f"openai={url}"))
    opened.callback(engine.close)
    assert "cannot be checked" in engine.notice


def test_a_named_model_has_the_tokenizer(
    connect_llama: Connect, server: FakeServer, tokenizer_folder: Path, tmp_path: Path
) -> None:
    server.model = "/somewhere/model.gguf"
    with pytest.raises(BadModel, match=r"/somewhere/model\.gguf.*the setting model"):
        connect_llama()
    connect_llama(model=str(tokenizer_folder))
    with pytest.raises(BadModel, match="is not a model folder"):
        connect_llama(model=str(tmp_path))


def test_the_tokenizer_of_any_gguf_file_is_read(
    connect_llama: Connect, server: FakeServer, tokenizer_folder: Path, tmp_path: Path
) -> None:
    """Of an architecture that midfill's own engine does not run, with a type of weights that it does not know."""
    fields = {"general.architecture": "qwen35moe"} | tokenizer_fields(tokenizer_folder / "tokenizer.json")
    file = write_file(tmp_path / "model.gguf", fields, {"weight": (np.zeros((2, 32), np.float32), "F32")})
    tensor = len("weight") + 4 + 2 * 8  # behind its name, and its two dimensions, stands the type
    content = bytearray(file.read_bytes())
    content[content.rindex(b"weight") + tensor] = 99
    file.write_bytes(content)
    server.model = str(file)
    assert connect_llama().complete(CompletionRequest("me/a", Prompt("x", "y"), 8)).text
    assert connect_llama(model=str(tmp_path)).tokenizer.encode("def") == server.tokenizer.encode("def")


def test_one_of_several_models_is_chosen(connect_openai: Connect, server: FakeServer, tokenizer_folder: Path) -> None:
    server.model = f"other,{tokenizer_folder}"
    engine = connect_openai(model=str(tokenizer_folder))
    assert engine.info.model == str(tokenizer_folder)
    server.model = "one,two"
    with pytest.raises(BadInput, match=r"offers no model .* but one, two"):
        connect_openai(model=str(tokenizer_folder))


def test_a_small_context_is_refused(connect_llama: Connect, server: FakeServer) -> None:
    server.context = 32
    with pytest.raises(BadInput, match="a context of 32 tokens"):
        connect_llama()


def test_a_core_with_a_remote_engine_imports_no_torch(server: FakeServer, opened: ExitStack) -> None:
    url = opened.enter_context(serving(llama_server(server)))
    program = (
        "import sys\n"
        "import inference.core.process\n"
        "from inference.loading.options import EngineOptions\n"
        "from inference.remote.connecting import EngineOpener\n"
        "from protocol.messages import CompletionRequest, Prompt\n"
        "options = EngineOptions(engine=sys.argv[1])\n"
        "opener = EngineOpener(options)\n"
        "assert not opener.needs_download\n"
        "engine = opener.open()\n"
        "print(engine.complete(CompletionRequest('a/b', Prompt('x', 'y'), 8)).text)\n"
        "engine.close()\n"
        "loaded = {'torch', 'transformers', 'safetensors', 'accelerate'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    command = [sys.executable, "-c", program, f"llama-server={url}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "alpha beta\n"), done.stderr


def test_the_session_header_has_the_name_that_a_router_wants(connect_openai: Connect, server: FakeServer) -> None:
    engine = connect_openai(engine_session_header="x-user-id")
    server.model += "," + server.model  # the fake keeps caches by X-Session-ID
    with pytest.raises(EngineUnavailable):
        engine.complete(CompletionRequest("me/a", Prompt("x", "y"), 8))
    assert server.headers[-1]["x-user-id"]
    assert "x-session-id" not in server.headers[-1]
    with pytest.raises(BadInput, match="engine_session_header = 'no header'"):
        connect_openai(engine_session_header="no header")


def test_a_restarted_server_with_another_model_is_noticed(connect_llama: Connect, server: FakeServer) -> None:
    engine = connect_llama()
    request = CompletionRequest("me/a", Prompt("value = 1\n" * 30, ""), 8)
    engine.complete(request)
    server.resident.clear()
    server.context += 1
    engine.complete(request)
    while not engine.is_gone:
        engine.complete(request)


@pytest.mark.parametrize("model", ["~nosuchuser/x", "x" * 300, "a\0b", ""])
def test_what_is_no_name_of_a_tokenizer_is_refused(model: str) -> None:
    with pytest.raises(BadModel, match="neither a folder, nor a GGUF file, nor a name on the Hugging Face hub"):
        open_tokenizer(model)

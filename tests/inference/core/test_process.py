from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from inference.core.process import ServeOptions, bind, serve
from inference.loading.options import EngineOptions
from protocol.errors import AlreadyServed, BadInput, BadModel, DeviceLost, PortInUse
from protocol.messages import CompletionRequest, Prompt, StopRule
from protocol.rendezvous import CoreAddress, address_file, read_address, read_or_make_token
from protocol.wire import Complete, Completed, Failed, Forget, encode
from tests.inference.serving import PATIENCE_S, receive

CODE = """
import sys
from pathlib import Path
from inference.loading.options import EngineOptions
from inference.core.process import ServeOptions, serve
model, folder = sys.argv[1:]
engine = EngineOptions(model, context_tokens=256, cache_folder=Path(folder) / "kv", threads=1)
serve(ServeOptions(engine, runtime_dir=Path(folder)))
"""


@contextmanager
def core(model: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", CODE, str(model), str(folder)], stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_address(process: subprocess.Popen[str], model: Path, folder: Path) -> CoreAddress:
    path = address_file(folder, str(model))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        address = read_address(path)
        if address is not None and address.pid == process.pid:
            return address
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    raise AssertionError("the core has not published its address")


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, errors


def ask(address: CoreAddress, folder: Path, request: CompletionRequest | None = None) -> object:
    """The core's answer to a request with the token in the folder."""
    bearer = {"Authorization": f"Bearer {read_or_make_token(folder)}"}
    with connect(address.url, additional_headers=bearer, open_timeout=PATIENCE_S) as websocket:
        websocket.send(encode(Complete(1, request or CompletionRequest("a.py", Prompt("def f():\n", "\n"), 4))))
        return receive(websocket)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_core_serves_is_found_and_leaves_nothing_behind(tiny_checkpoint: Path, folder: Path) -> None:
    with core(tiny_checkpoint, folder) as process:
        address = wait_for_address(process, tiny_checkpoint, folder)
        assert isinstance(ask(address, folder), Completed)
        with pytest.raises(InvalidStatus) as refused:
            connect(address.url, additional_headers={"Authorization": "Bearer wrong"})
        assert refused.value.response.status_code == 401

        served = f"a core serves {tiny_checkpoint} already: process {address.pid} at {address.url}"
        with pytest.raises(AlreadyServed, match=re.escape(served)):
            serve(options_of(tiny_checkpoint, folder))

        for number in range(8):
            prompt = Prompt(f"{number} = 1\n" * 30, "\n")
            answer = ask(address, folder, CompletionRequest(f"{number}.py", prompt, 8, stop=StopRule(indent=0)))
            assert isinstance(answer, Completed)
        process.send_signal(signal.SIGTERM)
        code, errors = finish(process)
        assert code == 0, errors
        assert "Traceback" not in errors
        assert read_address(address_file(folder, str(tiny_checkpoint))) is None


def options_of(model: Path, folder: Path, device: str = "cpu", exit_after_s: float = 600.0) -> ServeOptions:
    engine = EngineOptions(str(model), device=device, context_tokens=256, threads=1)
    return ServeOptions(engine, runtime_dir=folder, exit_after_s=exit_after_s)


def test_core_goes_when_nobody_comes(tiny_checkpoint: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert serve(options_of(tiny_checkpoint, folder, exit_after_s=0.1))
    assert "no client has been connected" in caplog.text
    assert read_address(address_file(folder, str(tiny_checkpoint))) is None


@contextmanager
def serving_here(options: ServeOptions, folder: Path) -> Iterator[tuple[CoreAddress, Future[bool]]]:
    """A core on a thread of this process: its address, and its end."""
    path, published = address_file(folder, options.engine.model), threading.Event()
    with ThreadPoolExecutor(1) as executor:
        ended = executor.submit(serve, options, published.set)
        assert published.wait(PATIENCE_S)
        address = read_address(path)
        assert address is not None
        yield address, ended
    assert read_address(path) is None


def test_core_whose_gpu_is_lost_answers_and_ends(tiny_checkpoint: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise DeviceLost("cuda:0 fails every call")

    monkeypatch.setattr("inference.remote.connecting.open_engine", load)
    with serving_here(options_of(tiny_checkpoint, folder), folder) as (address, ended):
        message = ask(address, folder)
        assert isinstance(message, Failed)
        assert "cuda:0 fails every call" in message.message
        with pytest.raises(DeviceLost):
            ended.result(PATIENCE_S)


def test_a_core_whose_model_cannot_be_loaded_exits_soon_when_unused(
    tiny_checkpoint: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("inference.core.process.FAILED_EXIT_AFTER_S", 0.1)
    with serving_here(options_of(tiny_checkpoint, folder, device="banana"), folder) as (address, ended):
        assert isinstance(ask(address, folder), Failed)
        assert ended.result(PATIENCE_S)
    assert "no client has been connected for 0.1 s" in caplog.text


def test_what_one_core_must_forget_another_model_s_core_forgets_at_once(tiny_checkpoint: Path, folder: Path) -> None:
    other = folder / "other"
    other.symlink_to(tiny_checkpoint)
    bearer = {"Authorization": f"Bearer {read_or_make_token(folder)}"}
    with core(tiny_checkpoint, folder) as told, core(other, folder) as idle:
        address = wait_for_address(idle, other, folder)
        assert recomputed(address, folder) > 1
        assert recomputed(address, folder) == 1
        url = wait_for_address(told, tiny_checkpoint, folder).url
        with connect(url, additional_headers=bearer, open_timeout=PATIENCE_S) as websocket:
            websocket.send(encode(Forget("client/a.py")))
        deadline = time.monotonic() + PATIENCE_S
        while recomputed(address, folder) == 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def recomputed(address: CoreAddress, folder: Path) -> int:
    answer = ask(address, folder)
    assert isinstance(answer, Completed)
    return answer.completion.usage.recomputed_tokens


def test_model_that_cannot_be_used_is_refused_before_anything_is_served(folder: Path) -> None:
    with pytest.raises(BadModel, match="is not a model folder"):
        serve(ServeOptions(EngineOptions(str(folder)), runtime_dir=folder))
    assert list(folder.iterdir()) == []


def test_taken_port_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port}"):
            serve(ServeOptions(port=port, runtime_dir=folder))


@pytest.mark.parametrize(
    ("host", "said"), [("nowhere.invalid", r"nowhere\.invalid"), ("192.0.2.1", r"192\.0\.2\.1:0.*another host")]
)
def test_host_that_is_none_is_named(host: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        bind(host, 0)


def run(code: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True, timeout=100
    ).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    code = (
        "import resource; from inference.core.connections import raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 2048))\n"
        "print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print(raise_file_limit())"
    )
    assert run(code).split() == ["1408", "2048", "32"]


def test_log_file_stays_small(tmp_path: Path) -> None:
    code = (
        "import sys, logging; from pathlib import Path; from inference.core import process as process_limits\n"
        "process_limits.MAX_LOG_BYTES = 10_000; process_limits.configure_log(Path(sys.argv[1]))\n"
        "for number in range(1000): logging.getLogger('inference').info('line %d', number)"
    )
    run(code, str(tmp_path / "core.log"))
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["core.log", "core.log.1"]
    assert all(file.stat().st_size <= 10_000 for file in files)
    assert "line 999" in files[0].read_text()

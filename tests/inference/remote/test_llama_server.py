"""llama-server as a child: what it is started with, and that it ends with the core, however that ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from inference.loading.options import EngineOptions
from inference.remote import llama_server, supervisor
from inference.remote.llama_server import child_environment, gguf_file, start_llama_server
from inference.remote.server import EngineAddress, HttpConnection
from protocol.errors import BadInput, BadModel, EngineUnavailable
from tests.inference.tiny_gguf import write_file

PATIENCE_S = 60.0
HYBRID = {
    "general.architecture": "granitehybrid",
    "granitehybrid.block_count": 40,
    "granitehybrid.attention.head_count_kv": [0] * 36 + [8] * 4,
    "granitehybrid.ssm.conv_kernel": 4,
    "granitehybrid.ssm.inner_size": 3072,
    "granitehybrid.ssm.state_size": 128,
    "granitehybrid.ssm.group_count": 1,
}
"""Of a model of 55 MiB of states."""

PROGRAM = """#!{python}
import http.server, json, os, socketserver, sys, time
from pathlib import Path
known = {{name: value for name, value in os.environ.items() if name.startswith("LLAMA_")}}
Path({folder!r}, "told.json").write_text(json.dumps([os.getpid(), sys.argv[1:], known]))
if {fails}:
    sys.exit("no such tensor")
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{{}}")
time.sleep(0.2)
host = sys.argv[sys.argv.index("--host") + 1]
if host.endswith(".sock"):
    socketserver.UnixStreamServer(host, Handler).serve_forever()
http.server.HTTPServer((host, int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder, whose path is short enough for a Unix socket."""
    with TemporaryDirectory(dir="/tmp" if os.name == "posix" else None) as folder:
        monkeypatch.setenv("MIDFILL_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """No path is short enough for a Unix socket."""
    monkeypatch.setattr("inference.remote.llama_server.MAX_SOCKET_BYTES", 0)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_file(tmp_path / "model.gguf", HYBRID, {})


def write_program(folder: Path, *, fails: bool = False) -> Path:
    path = folder / "llama-server"
    path.write_text(PROGRAM.format(python=sys.executable, folder=str(folder), fails=fails))
    path.chmod(0o755)
    return path


def ends(pid: int) -> bool:
    """Whether a process that may have ended already ends in time; a zombie has ended."""
    deadline = time.monotonic() + PATIENCE_S
    try:
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
    except psutil.NoSuchProcess:
        pass
    return True


@pytest.mark.skipif(os.name != "posix", reason="needs scripts that can be executed")
def test_it_is_started_with_slots_and_context_and_a_key_and_socket_of_its_own(gguf: Path, tmp_path: Path, runtime: Path) -> None:
    program = write_program(tmp_path)
    options = EngineOptions(str(gguf), context_tokens=1000, slots=3, threads=2)
    child = start_llama_server(str(program), options)
    pid, arguments, variables = json.loads((tmp_path / "told.json").read_text())
    assert list(runtime.iterdir()) == [Path(child.address.socket)]
    child.close()
    assert arguments == ["--model", str(gguf), "--host", child.address.socket]
    assert not list(runtime.iterdir())
    assert variables["LLAMA_API_KEY"] == child.key
    assert variables["LLAMA_ARG_N_PARALLEL"] == "3"
    assert variables["LLAMA_ARG_CTX_SIZE"] == "3000"
    assert variables["LLAMA_ARG_THREADS"] == "2"
    assert variables["LLAMA_ARG_CTX_CHECKPOINTS"] == "9"  # copies in 512 MiB
    assert ends(pid)


@pytest.mark.parametrize(("mebibytes", "copies"), [(0, None), (0.1, "32"), (62, "8"), (148, "4")])
def test_a_slot_keeps_as_many_copies_of_states_as_memory_allows(mebibytes: float, copies: str | None) -> None:
    chosen = child_environment(EngineOptions(), int(mebibytes * 2**20))
    assert chosen.get("LLAMA_ARG_CTX_CHECKPOINTS") == copies


@pytest.mark.skipif(os.name != "posix", reason="needs scripts that can be executed")
def test_one_that_fails_is_reported(gguf: Path, tmp_path: Path) -> None:
    program = write_program(tmp_path, fails=True)
    with pytest.raises(EngineUnavailable, match="llama-server ended with status 1"):
        start_llama_server(str(program), EngineOptions(str(gguf)))


@pytest.mark.skipif(os.name != "posix", reason="needs scripts that can be executed")
@pytest.mark.usefixtures("ports")
def test_who_takes_the_port_before_it_is_sent_nothing(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free_address, received = llama_server._free_address, list[bytes]()
    with socket.socket() as impostor:

        def taken() -> EngineAddress:
            address = free_address()
            impostor.bind(("127.0.0.1", int(address.url.rpartition(":")[2])))
            impostor.listen()
            return address

        monkeypatch.setattr(llama_server, "_free_address", taken)
        with pytest.raises(EngineUnavailable, match="llama-server ended with status 1: the core's log has its reason"):
            start_llama_server(str(write_program(tmp_path)), EngineOptions(str(gguf)))
        impostor.settimeout(0)
        with suppress(BlockingIOError):
            received.append(impostor.accept()[0].recv(1000))
    assert received == []


@pytest.mark.skipif(os.name != "posix", reason="needs scripts that can be executed")
@pytest.mark.usefixtures("ports")
async def test_who_takes_the_port_after_its_end_is_sent_nothing(gguf: Path, tmp_path: Path) -> None:
    child = start_llama_server(str(write_program(tmp_path)), EngineOptions(str(gguf)))
    connection = HttpConnection(child.address, child.key, child.check)
    await connection.get("/props", dict)
    pid, *_ = json.loads((tmp_path / "told.json").read_text())
    os.kill(pid, signal.SIGKILL)
    child._process.wait(PATIENCE_S)
    with socket.create_server(("127.0.0.1", int(child.address.url.rpartition(":")[2]))) as impostor:
        with pytest.raises(EngineUnavailable, match="llama-server ended with status"):
            await connection.post("/completion", {"prompt": [1]}, dict)
        impostor.settimeout(0)
        with pytest.raises(BlockingIOError):
            impostor.accept()
    await connection.aclose()
    child.close()


@pytest.mark.skipif(os.name != "posix", reason="needs scripts that can be executed")
async def test_it_is_reached_through_its_socket(gguf: Path, tmp_path: Path) -> None:
    child = start_llama_server(str(write_program(tmp_path)), EngineOptions(str(gguf)))
    connection = HttpConnection(child.address, child.key, child.check)
    assert await connection.get("/props", dict) == {}
    await connection.aclose()
    child.close()


def test_a_missing_program_is_named(gguf: Path) -> None:
    with pytest.raises(BadInput, match="there is no program 'no-llama-server'"):
        start_llama_server("no-llama-server", EngineOptions(str(gguf)))


def test_only_gguf_files_are_taken(gguf: Path, tmp_path: Path) -> None:
    assert gguf_file(str(gguf)) == gguf_file(str(tmp_path)) == gguf
    (tmp_path / "other.gguf").touch()
    with pytest.raises(BadModel, match="has several models: choose one of"):
        gguf_file(str(tmp_path))
    for model in ("bundled", str(tmp_path / "missing.gguf")):
        with pytest.raises(BadModel, match="needs a GGUF file"):
            gguf_file(model)


def test_the_program_ends_when_the_core_is_killed_and_leaves_no_socket(tmp_path: Path) -> None:
    pid_file, left = tmp_path / "pid", tmp_path / "socket"
    left.touch()
    sleeper = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    core = "import subprocess, sys, time\nsubprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\ntime.sleep(1000)\n"
    supervised = [sys.executable, "-I", supervisor.__file__, str(left), sys.executable, "-c", sleeper]
    command = [sys.executable, "-c", core, *supervised]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not (pid_file.exists() and pid_file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        psutil.Process(process.pid).children()[0].send_signal(signal.SIGINT)  # as Ctrl-C in the core's terminal does
        process.kill()
    assert ends(int(pid_file.read_text()))
    deadline = time.monotonic() + PATIENCE_S
    while left.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_cannot_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert supervisor.main("", ["/no/such/program"]) == 127
    assert "/no/such/program cannot be started" in capsys.readouterr().err

"""llama-server as a child: what it is started with, and that it ends with the core, however that ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from inference.loading.options import EngineOptions
from inference.remote import supervisor
from inference.remote.llama_server import child_environment, gguf_file, start_llama_server
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
import http.server, json, os, sys
from pathlib import Path
known = {{name: value for name, value in os.environ.items() if name.startswith("LLAMA_")}}
Path({folder!r}, "told.json").write_text(json.dumps([os.getpid(), sys.argv[1:], known]))
if {fails}:
    sys.exit("no such tensor")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


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
def test_it_is_started_with_slots_and_context_and_a_key_of_its_own(gguf: Path, tmp_path: Path) -> None:
    program = write_program(tmp_path)
    options = EngineOptions(str(gguf), context_tokens=1000, slots=3, threads=2)
    child = start_llama_server(str(program), options)
    pid, arguments, variables = json.loads((tmp_path / "told.json").read_text())
    child.close()
    assert arguments[:2] == ["--model", str(gguf)]
    assert child.address.url == f"http://127.0.0.1:{arguments[arguments.index('--port') + 1]}"
    assert child.key not in arguments
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
def test_one_that_fails_is_told(gguf: Path, tmp_path: Path) -> None:
    program = write_program(tmp_path, fails=True)
    with pytest.raises(EngineUnavailable, match="llama-server ended with status 1"):
        start_llama_server(str(program), EngineOptions(str(gguf)))


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


def test_the_program_ends_when_the_core_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    sleeper = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    core = "import subprocess, sys, time\nsubprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\ntime.sleep(1000)\n"
    command = [sys.executable, "-c", core, sys.executable, "-I", supervisor.__file__, sys.executable, "-c", sleeper]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not (pid_file.exists() and pid_file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    assert ends(int(pid_file.read_text()))


def test_a_program_that_cannot_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert supervisor.main(["/no/such/program"]) == 127
    assert "/no/such/program cannot be started" in capsys.readouterr().err

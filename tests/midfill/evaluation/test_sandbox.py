"""What generated code cannot do: run on, eat memory, breed, call out, write, or claim to have passed."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from midfill.evaluation.sandbox import GUARD, Limits, Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox(Limits(cpu_seconds=1, wall_seconds=4, memory_bytes=2**28))


def test_a_program_that_gets_to_its_end_passes(sandbox: Sandbox) -> None:
    assert sandbox.run("import math\nassert math.sqrt(4) == 2\nprint('done')") == "passed"


@pytest.mark.parametrize(
    "program",
    [
        "assert False",
        "def f(:",
        "raise SystemExit(0)",
        "import os\nos._exit(0)",
        "def f(): f()\nf()",
        "print('a password that was guessed')\nraise SystemExit(0)",
    ],
)
def test_a_program_that_does_not_has_failed(sandbox: Sandbox, program: str) -> None:
    assert sandbox.run(program) == "failed"


def test_an_endless_loop_is_ended(sandbox: Sandbox) -> None:
    assert sandbox.run("while True: pass") == "timed out"


def test_a_sleeper_is_ended() -> None:
    assert Sandbox(Limits(wall_seconds=1)).run("import time\ntime.sleep(60)") == "timed out"


def test_memory_is_limited(sandbox: Sandbox) -> None:
    program = "try: hog = bytearray(2**29)\nexcept MemoryError: pass\nelse: raise AssertionError"
    assert sandbox.run(program) == "passed"
    assert sandbox.run("hog = [bytearray(2**20) for _ in range(2**12)]") == "failed"


@pytest.mark.parametrize(
    "attempt",
    [
        "import os\nwhile True: os.fork()",
        "import subprocess\nsubprocess.run(['true'])",
        "import os\nos.system('true')",
        "import threading\nthreading.Thread(target=print).start()",
    ],
)
def test_no_process_can_be_started(sandbox: Sandbox, attempt: str) -> None:
    assert sandbox.run(attempt) == "failed"


def test_no_connection_can_be_made(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        program = f"import socket\nsocket.create_connection(('127.0.0.1', {port}))"
        assert sandbox.run(program) == "failed"
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize("call", ["open({!r}, 'w').write('x')", "__import__('os').open({!r}, 65)"])
def test_nothing_can_be_written(sandbox: Sandbox, tmp_path: Path, call: str) -> None:
    target = tmp_path / "written"
    assert sandbox.run(call.format(str(target))) == "failed"
    assert not target.exists()


@pytest.mark.parametrize("call", ["os.remove({!r})", "os.truncate({!r}, 0)", "open({!r}, 'r+')", "os.chmod({!r}, 0)"])
def test_nothing_can_be_changed(sandbox: Sandbox, tmp_path: Path, call: str) -> None:
    target = tmp_path / "kept"
    target.write_text("kept")
    assert sandbox.run("import os\n" + call.format(str(target))) == "failed"
    assert target.read_text() == "kept"


def test_environment_and_folder_are_empty(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "known")
    assert sandbox.run("import os\nassert 'A_SECRET' not in os.environ\nassert os.listdir() == []") == "passed"


def test_the_system_stands_behind_what_python_refuses(sandbox: Sandbox) -> None:
    # The same limits without the audit hook: what gets around Python does not get around the kernel.
    way = sandbox.confinement
    if way.processes != "refused by the system" or not way.network.startswith("none"):
        pytest.skip("this machine leaves it to Python")
    attempts = (
        "import os, socket, sys\n"
        f"sys.path.insert(0, {str(GUARD.parent)!r})\n"
        "import guard\n"
        "guard.limit(1, 4, 2**28)\n"
        "for attempt in (os.fork, lambda: socket.create_connection(('127.0.0.1', 9))):\n"
        "    try: attempt()\n"
        "    except OSError as error: print(error.errno)\n"
    )
    command = [*way.wrapper, sys.executable, "-I", "-S", "-B", "-c", attempts]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == [str(errno.EAGAIN), str(errno.ENETUNREACH)]


def test_without_namespaces_python_refuses_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    sandbox = Sandbox()
    assert sandbox.confinement.wrapper == ()
    assert "network: refused to Python code only" in sandbox.description
    assert sandbox.run("assert True") == "passed"
    assert sandbox.run("import socket\nsocket.socket()") == "failed"
    assert sandbox.run("import os\nos.fork()") == "failed"


def test_its_description_says_what_holds(sandbox: Sandbox) -> None:
    assert "256 MB" in sandbox.description
    assert "network: " in sandbox.description

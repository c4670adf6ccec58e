"""`midfill complete` and `midfill doctor` beside a core that is running."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from click.testing import Result
from typer.testing import CliRunner

from inference.loading.main_memory import MainMemory
from midfill.commands import app
from midfill.complete import FilePosition, complete
from midfill.core_to_ask import Waiting
from midfill.doctor.checks import cores
from protocol.errors import AlreadyServed, Unauthorized
from protocol.rendezvous import address_file, read_address
from protocol.settings import TINY_MODEL, Settings
from tests.midfill import conftest

runtime = conftest.runtime  # of each test; that of other tests here is of their module
START_SECONDS = 100.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def core(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A core that serves the tiny model in a runtime folder of its own, which this process uses too."""
    monkeypatch.setenv("MIDFILL_MODEL", TINY_MODEL)
    with subprocess.Popen([sys.executable, "-m", "midfill", "core"], stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + START_SECONDS
        while not address_file(runtime, TINY_MODEL).exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
        process.terminate()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_text("def area(width, height):\n    return \n", encoding="utf-8")
    return path


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_documented_requests(core: "subprocess.Popen[bytes]", runtime: Path) -> None:
    address = read_address(address_file(runtime, TINY_MODEL))
    assert address is not None
    http = (ROOT / "docs" / "core.md").read_text(encoding="utf-8").partition("## HTTP")[2]
    commands = http.partition("```sh\n")[2].partition("```")[0]
    port = str(urlsplit(address.url).port)
    commands = commands.replace("8765", port).replace("cat FILE", f"cat '{runtime / 'token'}'")
    answers = subprocess.run(
        ["bash", "-e", "-c", commands.replace("\n\n", "\necho\n")], capture_output=True, text=True, check=True
    ).stdout.splitlines()[1:]
    health, infill, completions = map(json.loads, answers[:3])
    assert health == {"status": "unloaded", "model": TINY_MODEL, "detail": ""}
    assert infill["content"]
    assert infill["tokens_predicted"] <= 8
    assert completions["choices"][0]["text"] == infill["content"]
    assert completions["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert 'midfill_requests_total{kind="suggestion",outcome="completed"} 2.0' in answers


async def test_a_token_that_is_not_the_cores(core: "subprocess.Popen[bytes]", source: Path, runtime: Path) -> None:
    (runtime / "token").write_text("another")
    with pytest.raises(Unauthorized, match="does not know the token"):
        await complete(Settings(model=TINY_MODEL), FilePosition(source, 1, 10), Waiting(), may_start=True)
    (problem,) = (await cores(Settings(model=TINY_MODEL))).problems
    assert "does not know this machine's token" in problem


def test_the_doctor_counts_what_the_core_holds_as_there(
    core: "subprocess.Popen[bytes]", source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.loading.placement.main_memory", lambda: MainMemory(2**30, 2**20))
    assert run("complete", f"{source}:1:10").exit_code == 0  # the model is loaded
    assert run("doctor").exit_code == 0
    core.terminate()
    core.wait(START_SECONDS)
    assert "are free for it" in run("doctor").stdout


def test_the_core_that_is_started_for_one_answer_gives_the_next_and_makes_place_for_one_by_hand(
    runtime: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIDFILL_MODEL", TINY_MODEL)
    monkeypatch.setenv("MIDFILL_EXIT_AFTER_S", "60")  # where the test is broken off
    monkeypatch.setattr("inference.remote.connecting.open_engine", None)  # no call loads a model itself
    file = address_file(runtime, TINY_MODEL)
    first, second = (run("complete", f"{source}:1:10") for _ in range(2))
    assert "midfill: starting a core for tiny, which stays for the next call" in first.stderr
    assert "midfill: the core loads tiny" in first.stderr
    assert "starting" not in second.stderr
    assert "loads" not in second.stderr
    assert first.stdout == second.stdout != ""
    started = read_address(file)
    assert started is not None
    assert started.replaceable
    former = psutil.Process(started.pid)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        on_it = [sys.executable, "-m", "midfill", "core", "--port", str(taken.getsockname()[1])]
        refused = subprocess.run(on_it, capture_output=True, text=True, check=False)
    assert "Choose another port" in refused.stderr
    assert former.is_running()
    by_hand = [sys.executable, "-m", "midfill", "core", "--port", "0"]
    with subprocess.Popen(by_hand, stderr=subprocess.PIPE, text=True) as core:
        try:
            assert core.stderr is not None
            told = core.stderr.readline()
            assert f"taking the place of the core that an editor has started (process {started.pid})" in told
            while (address := read_address(file)) is None or address.pid != core.pid:
                assert core.poll() is None
                time.sleep(0.05)
            assert psutil.wait_procs([former], START_SECONDS)[1] == []
            assert run("complete", f"{source}:1:10").stdout == first.stdout
        finally:
            core.terminate()
            core.communicate()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_second_core_of_the_model_is_refused_with_the_address_of_the_first(
    core: "subprocess.Popen[bytes]", runtime: Path
) -> None:
    address = read_address(address_file(runtime, TINY_MODEL))
    assert address is not None
    second = subprocess.run([sys.executable, "-m", "midfill", "core", "--port", "0"], capture_output=True, text=True, check=False)
    assert second.returncode == AlreadyServed.exit_status
    last = second.stderr.splitlines()[-1]
    assert last.startswith(f"midfill: a core serves tiny already: process {core.pid} at {address.url}")
    assert "midfill core stop" in last

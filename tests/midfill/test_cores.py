"""`midfill core list`, `stop`, `restart`, `unload` and `free`, on cores without a model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from midfill.commands import app
from protocol.errors import BadInput
from protocol.rendezvous import address_file, core_settings, read_address, read_stop, write_address
from protocol.settings import Settings

ROOT = Path(__file__).parents[2]
Start = Callable[..., int]


def command(model: str, *options: str) -> list[str]:
    return [sys.executable, str(ROOT / "tests/lsp_server/fake_core.py"), "--model", model, *options]


@contextmanager
def running_core(runtime: Path, model: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A core for a model in this runtime folder, once it is published; it is killed with the block."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MIDFILL_RUNTIME_DIR": str(runtime)}
    with subprocess.Popen(command(model, *options), env=environment) as process:
        try:
            deadline = time.monotonic() + 100
            while not address_file(runtime, model).exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


@pytest.fixture
def start(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a core for a model; the process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for a core that a command starts
    with ExitStack() as stack:
        yield lambda model, *options: stack.enter_context(running_core(runtime, model, *options)).pid


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["core", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_cores_are_listed_with_the_settings_that_were_chosen(start: Start) -> None:
    first, second = start("one", "--store-mb", "7"), start("two", "--protocol", "1")
    listed = {core["model"]: core for core in json.loads(run("list", "--json")[1])}
    chosen = [listed["one"][name] for name in ("pid", "state", "settings")]
    assert chosen == [first, "ready", {"store_mb": 7}]
    assert (listed["two"]["pid"], listed["two"]["state"]) == (second, "other version")
    assert listed["one"]["memory"]["weights_bytes"] == 20_000_000
    lines = run("list")[1].splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("one  ready  ws://127.0.0.1:"))
    assert lines[place].endswith("--store-mb 7")
    assert lines[place + 1] == ("  process 300 MB, weights 20 MB, 2 workspaces 80 MB, KV: device 8 MB (900 tokens)")
    assert any("protocol 1, this midfill: " in line for line in lines)


def test_one_core_or_all_are_stopped_whatever_their_version(start: Start) -> None:
    start("one"), start("two"), start("three", "--protocol", "1")
    assert run("stop", "--model", "one")[1].startswith("stopped one (process ")
    listed = json.loads(run("list", "--json")[1])
    states = {core["model"]: core["state"] for core in listed}
    assert states == {"two": "ready", "three": "other version", "one": "stopped"}
    assert [listed[-1][name] for name in ("detail", "pid", "memoryBytes")] == ["by `midfill core stop`", None, None]
    assert len(run("stop")[1].splitlines()) == 2
    assert sorted(line.partition("  ")[0] for line in run("list")[1].splitlines()) == ["one", "three", "two"]


def test_a_core_that_was_killed_is_none(start: Start) -> None:
    os.kill(start("one"), signal.SIGKILL)
    while run("list")[1]:
        time.sleep(0.02)
    result = CliRunner().invoke(app, ["core", "stop", "--model", "one"])
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == "no core is running for one"


def test_a_core_is_restarted_with_its_settings(start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []

    def fake_command(settings: Settings, log_file: Path) -> list[str]:
        asked.append(settings)
        return command(settings.model, "--store-mb", str(settings.store_mb))

    monkeypatch.setattr("lsp_server.core_client.link.core_command", fake_command)
    former = start("one", "--store-mb", "7")
    assert run("restart")[1].startswith(f"restarted one (process {former}): now process ")
    assert run("stop")[0] == 0
    assert run("restart")[1].startswith("started one (process ")
    assert [(settings.model, settings.store_mb) for settings in asked] == [("one", 7)] * 2
    address = read_address(address_file(runtime, "one"))
    assert address is not None
    assert address.pid != former
    assert read_stop(address_file(runtime, "one")) is None
    psutil.Process(address.pid).kill()


def test_a_core_with_a_key_that_the_command_lacks_is_not_restarted(
    start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = start("one")
    file = address_file(runtime, "one")
    address = read_address(file)
    assert address is not None
    keyed = core_settings(Settings(engine_key="hush"))
    write_address(file, replace(address, settings={**address.settings, **keyed}))
    for key in ("", "another"):
        monkeypatch.setenv("MIDFILL_ENGINE_KEY", key)
        status, _, message = run("restart")
        assert (status, "set MIDFILL_ENGINE_KEY" in message) == (1, True)
    assert psutil.pid_exists(former)


def test_a_model_is_unloaded_and_what_is_resident_is_freed(start: Start, tmp_path: Path) -> None:
    start("one")
    gave = "900 resident tokens; the process had 300 MB and has 200 MB"
    assert run("free", "--disk", "--model", "one")[1].endswith(f": {gave}\n")
    assert run("unload")[1].startswith("unloaded one (process ")


def test_what_no_core_has_open_is_removed_from_disk(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_CACHE_DIR", str(tmp_path / "kv"))
    saved = tmp_path / "kv" / "0123456789abcdef"
    saved.mkdir(parents=True)
    for name in ("lock", "00000001.safetensors"):
        (saved / name).touch()
    assert run("free", "--disk") == (0, f"removed {saved}, which no core had open\n", "")
    assert not saved.exists()


def test_what_cannot_be_done_is_told_and_the_others_are_done(start: Start) -> None:
    start("one"), start("two", "--protocol", "1")
    code, done, problems = run("unload")
    assert code == 1
    assert done.startswith("unloaded one ")
    assert problems.startswith("midfill: two: ")

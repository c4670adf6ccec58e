"""Finding and starting the core of this machine, with a fake core as a real process.

Which core makes place, and that no client starts one meanwhile; tests/e2e/test_core_control.py has the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import filelock
import psutil
import pytest
from msgspec.json import encode

from lsp_server.core_client import client as proof
from lsp_server.core_client import processes
from lsp_server.core_client.client import CoreClient, Endpoint
from lsp_server.core_client.processes import LocalCore, core_command, end_core, place_of, starting_lock, stop_core
from protocol.errors import BadInput, CoreBlocked, CoreUnavailable
from protocol.messages import PROTOCOL_VERSION
from protocol.rendezvous import CoreAddress, address_file, hold, read_address, read_or_make_token, runtime_folder, write_address
from protocol.settings import CORE_SETTINGS, Settings, json_name
from protocol.settings_sources import with_json_text
from tests.lsp_server.editor import PATIENCE_S, until
from tests.lsp_server.fake_core import listening

FAKE_CORE = Path(__file__).parents[1] / "fake_core.py"
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    folder = runtime_folder()
    yield folder
    for pid in _starts(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, str(FAKE_CORE), "--model", "fake", "--starts", str(folder / "starts"), *options]


def _local_core(folder: Path, *options: str, timeout_s: float = PATIENCE_S) -> LocalCore:
    return LocalCore(address_file(folder, "fake"), _command(folder, *options), timeout_s)


def _has_ended(pid: int) -> bool:
    """Whether it has; a child of this process stays a zombie until it is asked for."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _starts(folder: Path) -> list[int]:
    file = folder / "starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def test_racing_language_servers_end_with_one_core(folder: Path) -> None:
    cores = [_local_core(folder) for _ in range(4)]
    addresses = await asyncio.gather(*(core.find_or_start() for core in cores))
    assert all(address == addresses[0] for address in addresses)
    assert _starts(folder) == [addresses[0].pid]


async def test_a_killed_core_is_replaced(folder: Path) -> None:
    core = _local_core(folder)
    first = await core.find_or_start()
    psutil.Process(first.pid).kill()
    psutil.wait_procs([psutil.Process(first.pid)], timeout=PATIENCE_S)
    second = await core.find_or_start()
    assert second.pid != first.pid
    assert _starts(folder) == [first.pid, second.pid]


STALE = encode(CoreAddress("ws://127.0.0.1:9/ws", os.getpid(), "fake"))  # the process lives, but nobody listens


@pytest.mark.parametrize("published", [STALE, b"{"])
async def test_what_is_no_address_of_a_running_core_is_replaced(folder: Path, published: bytes) -> None:
    address_file(folder, "fake").write_bytes(published)
    address = await _local_core(folder).find_or_start()
    assert _starts(folder) == [address.pid]
    assert address.pid != os.getpid()


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("sys.exit('it is truncated')", CoreUnavailable, r"exited with status 1: it is truncated \(log: .*core-\w+\.log\)$"),
        ("print('midfill: no model', file=sys.stderr); sys.exit(2)", BadInput, r"^no model \(log: .*core-\w+\.log\)"),
        ("time.sleep(30)", CoreUnavailable, r"no core started within 1 s: it logged nothing \(log: "),
    ],
)
async def test_a_core_that_does_not_come_up_is_reported_with_its_last_words(
    folder: Path, program: str, error: type[Exception], message: str
) -> None:
    command = [sys.executable, "-c", f"import sys, time; {program}"]
    core = LocalCore(address_file(folder, "fake"), command, 1.0 if "sleep" in program else PATIENCE_S)
    with pytest.raises(error, match=message):
        await core.find_or_start()
    assert address_file(folder, "fake").with_suffix(".log").stat().st_mode & 0o077 == 0


async def test_a_core_that_could_not_write_its_log_is_reported_with_the_disk_that_is_full(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    core = LocalCore(address_file(folder, "fake"), [sys.executable, "-c", "import sys; sys.exit(120)"], PATIENCE_S)
    with pytest.raises(CoreUnavailable, match=rf"status 120: it could not write its log, since the disk of {folder} is full"):
        await core.find_or_start()


async def test_a_command_that_cannot_run(folder: Path) -> None:
    core = LocalCore(address_file(folder, "fake"), ["/no/such/program"], timeout_s=5.0)
    with pytest.raises(FileNotFoundError):
        await core.find_or_start()


def test_the_command_line_says_what_the_settings_say(tmp_path: Path) -> None:
    settings = Settings(model="some/model", device="cuda:1", dtype="float16", store_mb=7, unload_after_s=8, fim_format="mellum")
    *command, log_file, text = core_command(replace(settings, engine_key="secret"), tmp_path / "log")
    assert command[1:] == ["-P", "-m", "inference.core"]
    assert log_file == str(tmp_path / "log")
    assert "secret" not in text
    assert with_json_text(Settings(), text) == settings
    assert list(json.loads(text)) == [json_name(name) for name in CORE_SETTINGS]


async def test_a_core_that_leaves_it_to_another_is_no_failure(folder: Path) -> None:
    core = _local_core(folder, "--leave")
    pending = asyncio.create_task(core.find_or_start())
    while not _starts(folder):
        await asyncio.sleep(0.02)
    other = _local_core(folder)
    started = await asyncio.wait_for(other._start(), PATIENCE_S)
    assert await pending == started


posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")


@posix
async def test_a_stopped_core_is_replaced(folder: Path) -> None:
    core = _local_core(folder)
    first = await core.find_or_start()
    os.kill(first.pid, signal.SIGSTOP)
    second = await asyncio.wait_for(core.find_or_start(), PATIENCE_S)
    assert _starts(folder) == [first.pid, second.pid]
    await until(lambda: _has_ended(first.pid))


@posix
async def test_a_stopped_core_that_was_started_by_hand_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await _local_core(folder, "--by-hand").find_or_start()
    os.kill(first.pid, signal.SIGSTOP)
    with monkeypatch.context() as impatient:
        impatient.setattr(proof, "_TIMEOUT_S", 0.1)
        with pytest.raises(CoreBlocked, match=rf"process {first.pid}\) does not answer. It was started by hand"):
            await _local_core(folder).find_or_start()
    os.kill(first.pid, signal.SIGCONT)
    assert (await _local_core(folder).find_or_start()).pid == first.pid


async def test_an_unused_core_of_another_version_is_replaced(folder: Path) -> None:
    """The processes of this test take part in the same protocol; what one core has published says otherwise."""
    process = await asyncio.create_subprocess_exec(*_command(folder, "--protocol", "1"))
    await until(address_file(folder, "fake").exists)
    second = await _local_core(folder).find_or_start()
    assert _starts(folder) == [process.pid, second.pid]
    assert await process.wait() != 0


async def test_a_core_of_another_version_that_others_use_is_named(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(*_command(folder, "--protocol", "1"))
    file = address_file(folder, "fake")
    await until(file.exists)
    client = await CoreClient.open(Endpoint(read_address(file).url, read_or_make_token(folder)), lambda _: None)
    with pytest.raises(CoreBlocked, match=rf"process {process.pid}\) has another version.*`midfill core stop`"):
        await _local_core(folder).find_or_start()
    await client.close()
    assert (await _local_core(folder).find_or_start()).pid != process.pid
    assert await process.wait() != 0


async def test_a_listener_at_the_address_of_a_core_that_has_ended_never_gets_the_token(folder: Path) -> None:
    heard = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.read(4096)
        writer.close()

    async with listening(listen) as url:
        stale = CoreAddress(url, os.getppid(), "fake", protocol_version=PROTOCOL_VERSION)
        write_address(address_file(folder, "fake"), stale)
        address = await _local_core(folder).find_or_start()
    assert address.url != url
    assert read_or_make_token(folder).encode() not in heard


async def test_a_core_is_ended_on_request(folder: Path) -> None:
    file = address_file(folder, "fake")
    assert not await end_core(file, "stop")
    address = await _local_core(folder).find_or_start()
    assert await end_core(file, "restart")
    await until(lambda: _has_ended(address.pid))
    assert not await end_core(file, "stop")


@posix
async def test_a_core_is_ended_though_nothing_can_be_written(folder: Path) -> None:
    core = await _local_core(folder).find_or_start()
    file = address_file(folder, "fake")
    file.with_suffix(".stopped").mkdir()
    with pytest.raises(BadInput, match=r"has ended, and the editors that are open start another: .*\.stopped cannot be used"):
        await stop_core(file, "a test")
    await until(lambda: _has_ended(core.pid))


async def test_a_stopped_core_is_ended_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_EXIT_S", 0.2)
    address = await _local_core(folder, "--by-hand").find_or_start()
    os.kill(address.pid, signal.SIGSTOP)
    monkeypatch.setattr(proof, "_TIMEOUT_S", 0.1)
    with pytest.raises(CoreBlocked, match="was started by hand"):
        await end_core(address_file(folder, "fake"), "restart")
    assert await end_core(address_file(folder, "fake"), "stop")
    await until(lambda: _has_ended(address.pid))


async def test_no_process_but_the_core_is_signalled(folder: Path) -> None:
    """The address names a process that does not listen there."""
    file = address_file(folder, "fake")
    write_address(file, CoreAddress("ws://127.0.0.1:9/ws", os.getpid(), "fake"))
    with hold(file), pytest.raises(CoreBlocked, match=f"process {os.getpid()} may not be the core"):
        await end_core(file, "stop")


@pytest.mark.parametrize("running", [True, False])
def test_a_core_by_hand_stays_and_no_client_starts_one_meanwhile(tmp_path: Path, running: bool) -> None:
    file, told = address_file(tmp_path, "m"), []
    # One that is killed leaves its address.
    write_address(file, CoreAddress("ws://127.0.0.1:9/ws", os.getpid(), "m", replaceable=not running))
    with hold(file) if running else hold(address_file(tmp_path, "another")):
        with place_of(file, told.append, lambda: None), pytest.raises(filelock.Timeout):
            starting_lock(file).acquire(blocking=False)
        with starting_lock(file).acquire(blocking=False):
            assert told == []

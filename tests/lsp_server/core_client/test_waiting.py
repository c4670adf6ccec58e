from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import psutil
import pytest

from lsp_server.core_client.link import local_core
from lsp_server.core_client.processes import CoreProcess
from lsp_server.core_client.waiting import CORE, WaitingCore
from lsp_server.launch import make_server
from protocol.errors import AlreadyServed, BadSettings
from protocol.rendezvous import address_file, hold, runtime_folder
from protocol.settings import Settings

PATIENCE_S = 120.0
SETTINGS = Settings(model="tiny", disk_mb=0, unload_after_s=77)


@contextmanager
def started() -> Iterator[WaitingCore]:
    core = WaitingCore.start()
    yield core
    core.close()


@pytest.fixture
def waiting() -> Iterator[WaitingCore]:
    with started() as core:
        yield core


def process_of(waiting: WaitingCore) -> subprocess.Popen[bytes]:
    process = waiting._process
    assert process is not None
    return process


async def test_the_process_that_waits_becomes_the_first_core(waiting: WaitingCore, monkeypatch: pytest.MonkeyPatch) -> None:
    process = process_of(waiting)
    monkeypatch.setenv("MIDFILL_ENGINE_KEY", "")
    core = local_core(SETTINGS, waiting.spawn)
    address = await core.find_or_start()
    try:
        assert address.pid == process.pid
        assert (address.model, address.settings["unload_after_s"], address.replaceable) == ("tiny", 77, True)
        log = core.file.with_suffix(".log")
        assert log.stat().st_mode & 0o077 == 0
        found = psutil.Process(process.pid)
        assert Path(found.cwd()) == runtime_folder()
        assert {str(log), "/dev/null"} <= {str(Path(f"/proc/{process.pid}/fd/{number}").resolve()) for number in range(3)}
        other = waiting.spawn([sys.executable, "-c", ""], core.file.with_suffix(".other"), {})
        assert other.pid != process.pid
        other.wait(PATIENCE_S)
    finally:
        running = CoreProcess.of(address)
        assert running is not None
        running.kill()
        process.wait(PATIENCE_S)


def test_it_ends_with_its_language_server(waiting: WaitingCore) -> None:
    process = process_of(waiting)
    waiting.close()
    assert process.wait(PATIENCE_S) == 0


def test_none_waits_beside_a_core_or_another_one(waiting: WaitingCore) -> None:
    first, lock = process_of(waiting), runtime_folder() / "waiting.lock"
    while not lock.exists():
        assert first.poll() is None
    with started() as second:
        assert process_of(second).wait(PATIENCE_S) == AlreadyServed.exit_status
    waiting.close()
    first.wait(PATIENCE_S)
    file = address_file(runtime_folder(), "tiny")
    file.write_text("{}")
    with hold(file), started() as third:
        assert process_of(third).wait(PATIENCE_S) == AlreadyServed.exit_status
        later = third.spawn([*CORE, str(file.with_suffix(".log")), "{"], file.with_suffix(".log"), {})
    assert later.wait(PATIENCE_S) == BadSettings.exit_status


def test_a_core_is_started_where_the_one_that_waits_was_closed(waiting: WaitingCore) -> None:
    first = process_of(waiting)
    assert first.stdin is not None
    first.stdin.close()
    log = runtime_folder() / "closed.log"
    later = waiting.spawn([*CORE, str(log), "{"], log, {})
    assert (later.wait(PATIENCE_S), first.wait(PATIENCE_S)) == (BadSettings.exit_status, 0)


@pytest.mark.parametrize("settings", [Settings(core="ws://127.0.0.1:1"), Settings(engine="echo")])
async def test_none_waits_beside_a_core_elsewhere_or_another_engine(
    waiting: WaitingCore, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = process_of(waiting)
    server = make_server(settings, waiting)
    monkeypatch.setattr(server.link, "connect_to", AsyncMock())
    await server.connect()
    assert process.wait(PATIENCE_S) == 0
    await server.leave()


def test_it_starts_before_the_language_server_is_imported() -> None:
    program = (
        "import sys; from lsp_server.core_client.waiting import WaitingCore\n"
        "WaitingCore.start = lambda: sys.exit(len({'pygls', 'websockets', 'protocol.settings'} & sys.modules.keys()))\n"
        "sys.argv = ['midfill', 'lsp']; from midfill.__main__ import main; main()"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

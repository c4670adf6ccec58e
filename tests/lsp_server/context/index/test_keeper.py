"""The keeper has changed files read and folders scanned when that is due, and ends the index's process in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from lsp_server.context.index import keeper as keeping
from lsp_server.context.index import keeper as processes
from lsp_server.context.index.database import index_file, look_up
from lsp_server.context.index.keeper import IndexAnswer, IndexKeeper, IndexRequest, runs_on_battery
from tests.lsp_server.editor import until


class FakeProcess:
    """Notes what it is asked, and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[IndexRequest] = []
        self.answer: IndexAnswer | None = IndexAnswer(60.0)
        self.first_answer: IndexAnswer | None = None  # given once
        self.is_open = False

    async def __aenter__(self) -> FakeProcess:
        self.is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_open = False

    async def ask(self, request: IndexRequest) -> IndexAnswer | None:
        assert self.is_open
        self.asked.append(request)
        first, self.first_answer = self.first_answer, None
        return first or self.answer

    def take(self) -> list[tuple[str, tuple[str, ...], str]]:
        asked, self.asked = self.asked, []
        return [(Path(each.folder).name, each.files, each.scan) for each in asked]


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> IndexKeeper:
    for name in ("SETTLE_S", "APART_S", "IDLE_S"):
        monkeypatch.setattr(keeping, name, 0)
    return IndexKeeper()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> FakeProcess:
    process = FakeProcess()
    monkeypatch.setattr(keeping, "IndexProcess", lambda: process)
    return process


async def settled(keeper: IndexKeeper) -> None:
    """Return when nothing is to do or under way."""
    if keeper._work is not None:
        await asyncio.wait([keeper._work])


async def test_a_folder_is_scanned_when_it_is_opened_and_when_that_is_due(
    tmp_path: Path, keeper: IndexKeeper, process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = (tmp_path / "a", tmp_path / "b")
    time = 1000.0
    monkeypatch.setattr(keeping, "time", type("Clock", (), {"monotonic": staticmethod(lambda: time)}))
    process.answer = IndexAnswer(500.0)
    keeper.use(folders, enabled=True)
    await settled(keeper)
    assert process.take() == [("a", (), "opened"), ("b", (), "opened")]
    time += 499.0
    keeper.used()
    await settled(keeper)
    assert process.take() == []
    time += 1.0
    keeper.used()
    await settled(keeper)
    assert process.take() == [("a", (), "due"), ("b", (), "due")]
    assert not process.is_open


async def test_changed_files_are_named_and_nothing_is_scanned(tmp_path: Path, keeper: IndexKeeper, process: FakeProcess) -> None:
    keeper.use((tmp_path / "a", tmp_path / "b"), enabled=True)
    await settled(keeper)
    process.take()
    keeper.changed([(tmp_path / "a" / "x" / "é.py").as_uri(), (tmp_path / "c.py").as_uri(), "untitled:a.py", ""])
    keeper.changed([(tmp_path / "a" / "x" / "é.py").as_uri(), (tmp_path / "a" / "b.py").as_uri()])
    await settled(keeper)
    assert process.take() == [("a", ("b.py", "x/é.py"), "no")]
    keeper.changed([(tmp_path / "c.py").as_uri()])
    await settled(keeper)
    assert process.take() == []


async def test_files_are_named_again_to_a_process_that_had_to_wait(
    tmp_path: Path, keeper: IndexKeeper, process: FakeProcess
) -> None:
    process.first_answer = IndexAnswer(60.0, is_busy=True)
    keeper.use((tmp_path,), enabled=True)
    keeper.changed([(tmp_path / "a.py").as_uri()])
    await until(lambda: len(process.asked) == 2)
    await settled(keeper)
    assert process.take() == [(tmp_path.name, ("a.py",), "opened"), (tmp_path.name, ("a.py",), "no")]


@pytest.mark.parametrize("answer", [IndexAnswer(3600.0, is_unfit=True), None])
async def test_a_folder_that_is_not_indexed_is_left_alone(
    tmp_path: Path, keeper: IndexKeeper, process: FakeProcess, answer: IndexAnswer | None
) -> None:
    process.answer = answer
    keeper.use((tmp_path,), enabled=True)
    await settled(keeper)
    assert len(process.take()) == 1
    keeper.used()
    await settled(keeper)
    assert process.take() == []
    keeper.changed([(tmp_path / "a.py").as_uri()])
    await settled(keeper)
    assert len(process.take()) == (answer is None)


async def test_nothing_is_indexed_where_that_is_off(tmp_path: Path, keeper: IndexKeeper, process: FakeProcess) -> None:
    keeper.use((tmp_path,), enabled=False)
    keeper.changed([(tmp_path / "a.py").as_uri()])
    keeper.used()
    await settled(keeper)
    keeper.use((tmp_path,), enabled=True)
    await keeper.close()
    keeper.changed([(tmp_path / "a.py").as_uri()])
    await settled(keeper)
    assert process.take() == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "lib.py").write_text("def load(): ...\n")
    return tmp_path


def found(folder: Path) -> list[str]:
    return [each.path for each in look_up(index_file(folder), ["load"])]


async def test_one_process_answers_many_requests_and_ends_with_the_server(
    project: Path, keeper: IndexKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def noted(*arguments: object, **named: object) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", noted)
    monkeypatch.setattr(keeping, "IDLE_S", 60)
    keeper.use((project,), enabled=True)
    await until(lambda: found(project))
    (project / "more.py").write_text("def load(more): ...\n")
    keeper.changed([(project / "more.py").as_uri()])
    await until(lambda: len(found(project)) == 2)
    assert len(started) == 1
    os.kill(started[0].pid, signal.SIGKILL)  # a grammar that crashes, say
    started[0].wait()
    (project / "third.py").write_text("def load(third): ...\n")
    keeper.changed([(project / "third.py").as_uri()])
    await until(lambda: not keeper._changed and keeper._next_scan[project] > keeping.time.monotonic() + 500)
    keeper.changed([(project / "third.py").as_uri()])
    await until(lambda: len(found(project)) == 3)
    assert len(started) == 2
    await keeper.close()
    assert [each.poll() is not None for each in started] == [True, True]


async def test_a_scan_ends_with_the_server(project: Path) -> None:
    keeper = IndexKeeper()
    keeper.use((project,), enabled=True)
    await keeper.close()
    assert not index_file(project).exists()


async def test_a_folder_that_is_not_there_is_no_fault(tmp_path: Path, keeper: IndexKeeper) -> None:
    keeper.use((tmp_path / "gone",), enabled=True)
    await settled(keeper)
    assert not found(tmp_path / "gone")


async def test_a_cache_folder_that_cannot_be_written_is_said_in_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = project / "cache"
    folder.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    async with keeping.IndexProcess() as process:
        assert await process.ask(IndexRequest(str(project), scan="now")) is None
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("the index cannot be written: ")
    assert str(folder) in said
    assert f"the index of {project} is not up to date" in caplog.text


async def test_the_modules_of_the_folder_that_the_editor_was_started_in_are_not_run(
    project: Path, keeper: IndexKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("filelock", "logging", "sqlite3", "tree_sitter"):
        (project / f"{module}.py").write_text("open('was_run', 'w')\n")
    monkeypatch.chdir(project)
    keeper.use((project,), enabled=True)
    await settled(keeper)
    assert not (project / "was_run").exists()
    assert found(project)


async def test_a_process_whose_caller_is_cancelled_ends(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_COMMAND", ("sleep", "600"))
    async with processes.IndexProcess() as process:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.ask(IndexRequest(str(project))), 0.1)
        assert process._process is not None
        assert await asyncio.to_thread(process._process.wait) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("battery", "expected"),
    [
        (None, False),
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=None), False),
        (SimpleNamespace(power_plugged=False), True),
    ],
)
def test_the_machine_says_whether_it_runs_on_battery(monkeypatch: pytest.MonkeyPatch, battery: object, expected: bool) -> None:
    monkeypatch.setattr("psutil.sensors_battery", lambda: battery, raising=False)
    assert runs_on_battery() is expected


def test_a_machine_that_fails_to_say_has_no_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("psutil.sensors_battery", raising=False)
    assert runs_on_battery() is False

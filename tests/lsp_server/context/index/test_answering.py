"""When a folder is scanned, and what is not indexed at all."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from lsp_server.context.index import scan as answering
from lsp_server.context.index.database import index_file, look_up
from lsp_server.context.index.keeper import IndexAnswer, IndexRequest
from lsp_server.context.index.scan import answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, and the CPU seconds of this process, which stand still until told."""
    clock = SimpleNamespace(time=time.time(), cpu_s=0.0, per_scan_s=0.0)
    scan = answering.scan

    def costly_scan(*arguments: object) -> object:
        clock.cpu_s += clock.per_scan_s
        return scan(*arguments)

    monkeypatch.setattr(answering, "scan", costly_scan)
    monkeypatch.setattr(answering.time, "time", lambda: clock.time)
    monkeypatch.setattr(answering.time, "process_time", lambda: clock.cpu_s)
    return clock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "lib.py").write_text("def load(): ...\n")
    return folder


def ask(folder: Path, scan: str = "due", *files: str, on_battery: bool = False) -> IndexAnswer:
    return answer(IndexRequest(str(folder), files, scan), lambda: on_battery)


def test_a_scan_is_not_due_before_a_hundred_times_its_cost(folder: Path, clock: SimpleNamespace) -> None:
    clock.per_scan_s = 5.0
    assert ask(folder) == IndexAnswer(500.0, looked_at=1, checked=1, read=1, cpu_s=5.0)
    clock.time += 499.0
    assert ask(folder) == IndexAnswer(60.0)  # and not sooner than in a minute
    clock.time += 1.0
    assert ask(folder).looked_at == 1


def test_a_cheap_scan_is_due_after_a_minute(folder: Path, clock: SimpleNamespace) -> None:
    clock.per_scan_s = 0.1
    assert ask(folder).again_s == 60.0
    clock.time += 59.0
    assert ask(folder).looked_at == 0
    clock.time += 1.0
    assert ask(folder).looked_at == 1


def test_a_window_that_opens_does_not_wait_for_the_cost(folder: Path, clock: SimpleNamespace) -> None:
    clock.per_scan_s = 5.0
    ask(folder)
    clock.time += 59.0
    assert ask(folder, "opened").looked_at == 0  # another window has just scanned it
    clock.time += 1.0
    assert ask(folder, "opened").looked_at == 1


def test_no_scan_after_a_limit_for_a_day(folder: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.context.index.scan._MOST_FILES", 0)
    assert ask(folder).again_s == 24 * 3600
    clock.time += 24 * 3600 - 1
    for scan in ("due", "opened"):
        assert ask(folder, scan).again_s == 60.0
    monkeypatch.undo()
    assert ask(folder, "now", on_battery=True).read == 1


def test_on_battery_only_a_folder_without_an_index_is_scanned(folder: Path, clock: SimpleNamespace) -> None:
    assert ask(folder, "opened", on_battery=True).read == 1
    clock.time += 10_000.0
    (folder / "new.py").touch()
    for scan in ("due", "opened"):
        assert ask(folder, scan, on_battery=True).looked_at == 0
    assert ask(folder, "due", "new.py", on_battery=True).read == 1  # a file that changed is read
    assert ask(folder, "due").looked_at == 2


def test_files_that_changed_are_read_without_a_scan(folder: Path) -> None:
    assert ask(folder, "no", "lib.py").looked_at == 1
    assert [each.path for each in look_up(index_file(folder), ["load"])] == ["lib.py"]


def test_a_clock_that_was_set_back_delays_nothing(folder: Path, clock: SimpleNamespace) -> None:
    ask(folder)
    clock.time -= 1_000_000.0
    assert ask(folder).looked_at == 1


def test_the_home_folder_is_not_indexed_and_an_earlier_index_of_it_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(folder)
    assert index_file(folder).exists()
    monkeypatch.setattr(Path, "home", lambda: folder / "inner")
    assert ask(folder, "now", "lib.py") == IndexAnswer(3600.0, is_unfit=True)
    assert not index_file(folder).exists()


def test_a_folder_without_a_mark_is_not_indexed(folder: Path) -> None:
    (folder / "pyproject.toml").unlink()
    assert ask(folder).is_unfit
    assert not index_file(folder).exists()


def test_another_process_that_writes_the_index_is_left_to_do_so(folder: Path) -> None:
    ask(folder)
    file = index_file(folder)
    with FileLock(file.with_name(f"{file.name}.lock")):
        assert ask(folder, "now", "lib.py") == IndexAnswer(60.0, is_busy=True)


def test_an_index_that_turns_out_to_be_damaged_is_built_anew(folder: Path) -> None:
    ask(folder)
    file = index_file(folder)
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)  # all but the page with the schema
    file.write_bytes(content)
    with pytest.raises(answering.sqlite3.DatabaseError):
        ask(folder, "now")
    assert ask(folder, "now").read == 1

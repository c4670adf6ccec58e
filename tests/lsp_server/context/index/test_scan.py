"""The index follows the folder: what changed, what vanished, what became excluded; and nothing else enters it."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from lsp_server.context.index.database import IndexWriter, files_using, look_up
from lsp_server.context.index.scan import scan
from lsp_server.exclusion.exclusion import Exclusion


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "lib.py").write_text("def load(path): ...\n")
    (folder / "pkg" / "lib.ts").write_text("export function load() {}\n")
    (folder / "notes.txt").write_text("def load(): ...\n")
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "index" / "it.sqlite"


def scanned(folder: Path, file: Path) -> tuple[list[str], list[str]]:
    """The files that a scan reads, and those that leave the index."""
    with closing(IndexWriter(file)) as real:
        writer = mock.Mock(wraps=real, size=real.size)
        scan(folder, writer, Exclusion([folder.as_uri()], time.monotonic, recheck_s=0).reason)
    return [call.args[0] for call in writer.put.call_args_list], sorted(writer.remove.call_args.args[0])


def paths(file: Path, name: str = "load") -> list[str]:
    return sorted(each.path for each in look_up(file, [name]))


def test_source_files_are_read_once(folder: Path, file: Path) -> None:
    assert scanned(folder, file) == (["pkg/lib.py", "pkg/lib.ts"], [])
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]
    assert scanned(folder, file) == ([], [])


def test_changes_are_followed(folder: Path, file: Path) -> None:
    scanned(folder, file)
    (folder / "pkg" / "lib.py").write_text("def save(path): ...  # longer\n")
    (folder / "pkg" / "lib.ts").unlink()
    assert scanned(folder, file) == (["pkg/lib.py"], ["pkg/lib.ts"])
    assert paths(file) == []
    (found,) = look_up(file, ["save"])
    assert found.shown == "def save(path):"
    status = (folder / "pkg" / "lib.py").stat()
    assert found.stamp == (status.st_mtime_ns, status.st_size)


def test_excluded_files_are_not_in_it_and_leave_when_they_become_excluded(folder: Path, file: Path) -> None:
    (folder / ".gitignore").write_text("build/\n")
    (folder / "build").mkdir()
    (folder / "build" / "made.py").write_text("def load(made): ...\n")
    scanned(folder, file)
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]
    (folder / ".gitignore").write_text("build/\nlib.py\n")
    assert scanned(folder, file) == ([], ["pkg/lib.py"])
    assert paths(file) == ["pkg/lib.ts"]
    assert b"def load(path)" not in b"".join(part.read_bytes() for part in file.parent.iterdir())


@pytest.mark.parametrize("name", ["node_modules", ".hidden", "site-packages", "env"])
def test_copies_of_other_projects_are_not_in_it(folder: Path, file: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "copy.py").write_text("def load(): ...\n")
    if name == "env":
        (folder / name / "pyvenv.cfg").touch()
    scanned(folder, file)
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_hostile_files_are_passed_over(folder: Path, file: Path) -> None:
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "link.py").symlink_to(folder / "pkg" / "lib.py")
    os.mkfifo(folder / "pipe.py")
    (folder / "huge.py").write_bytes(b"def load(): ...\n" * 100_000)
    (folder / "binary.py").write_bytes(bytes(range(256)) * 20)
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.py")).write_text("def load(): ...\n")
    scanned(folder, file)
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]


def test_a_scan_out_of_time_keeps_what_it_did_not_reach(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned(folder, file)
    (folder / "pkg" / "lib.ts").unlink()
    monkeypatch.setattr("lsp_server.context.index.scan._MOST_SECONDS", -1.0)
    assert scanned(folder, file) == ([], ["pkg/lib.ts"])
    assert paths(file) == ["pkg/lib.py"]


def test_the_index_does_not_outgrow_its_limit(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.context.index.scan._MOST_INDEX_BYTES", 1)
    assert scanned(folder, file) == ([], [])


@pytest.mark.parametrize("content", [b"not a database, but long enough to look like one" * 100, b""])
def test_a_damaged_index_is_built_anew(folder: Path, file: Path, content: bytes) -> None:
    scanned(folder, file)
    for each in file.parent.iterdir():
        each.write_bytes(content)
    assert not list(look_up(file, ["load"]))
    assert scanned(folder, file)[0] == ["pkg/lib.py", "pkg/lib.ts"]
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]


def test_an_index_of_another_version_is_built_anew(folder: Path, file: Path) -> None:
    scanned(folder, file)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert scanned(folder, file)[0] == ["pkg/lib.py", "pkg/lib.ts"]


def test_the_index_is_the_users_alone(folder: Path, file: Path) -> None:
    scanned(folder, file)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_no_index_no_definitions(file: Path) -> None:
    assert not list(look_up(file, ["load"]))


def test_what_files_use_is_known_and_leaves_with_them(folder: Path, file: Path) -> None:
    (folder / "pkg" / "app.py").write_text("import load\n# save\nclass App: ...\nload(App)\n")
    scanned(folder, file)
    assert files_using(file, ["load", "App", "save", "absent"]) == [("load", "pkg/app.py"), ("App", "pkg/app.py")]
    (folder / "pkg" / "app.py").write_text("save()  # now\n")
    scanned(folder, file)
    assert files_using(file, ["load", "App", "save"]) == [("save", "pkg/app.py")]
    (folder / "pkg" / "app.py").unlink()
    scanned(folder, file)
    assert files_using(file, ["save"]) == []
    assert files_using(file.with_name("none"), ["save"]) == []

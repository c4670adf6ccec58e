"""The index follows the folder: what changed, what vanished, what became excluded; and nothing else enters it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from lsp_server.context.index import scan as scanning
from lsp_server.context.index.database import Indexed, IndexWriter, files_using, look_up
from lsp_server.context.index.scan import Rules, Work, scan, update
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


def rules_of(folder: Path) -> Rules:
    return Rules(Exclusion([folder.as_uri()], time.monotonic, recheck_s=60).rules_of)


def scanned(folder: Path, file: Path) -> Work:
    """What a scan does, which looks at the ignore files anew."""
    with closing(IndexWriter(file)) as writer:
        return scan(folder, writer, rules_of(folder))


def updated(folder: Path, file: Path, *changed: str) -> Work:
    with closing(IndexWriter(file)) as writer:
        return update(folder, writer, rules_of(folder), changed)


def paths(file: Path, name: str = "load") -> list[str]:
    return sorted(each.path for each in look_up(file, [name]))


def test_source_files_are_read_once(folder: Path, file: Path) -> None:
    assert scanned(folder, file) == Work(looked_at=2, checked=2, read=["pkg/lib.py", "pkg/lib.ts"])
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]
    assert scanned(folder, file) == Work(looked_at=2)


def test_changes_are_followed(folder: Path, file: Path) -> None:
    scanned(folder, file)
    (folder / "pkg" / "lib.py").write_text("def save(path): ...  # longer\n")
    (folder / "pkg" / "lib.ts").unlink()
    assert scanned(folder, file) == Work(looked_at=1, read=["pkg/lib.py"], removed=["pkg/lib.ts"])
    assert paths(file) == []
    (found,) = look_up(file, ["save"])
    assert found.shown == "def save(path):"
    status = (folder / "pkg" / "lib.py").stat()
    assert found.stamp == (status.st_mtime_ns, status.st_size)


def test_rules_are_asked_again_when_an_ignore_file_changed_below_its_folder(folder: Path, file: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "app.py").touch()
    scanned(folder, file)
    (folder / "pkg" / ".gitignore").write_text("*.log\n")
    assert scanned(folder, file) == Work(looked_at=3, checked=2)
    assert scanned(folder, file) == Work(looked_at=3)
    (folder / ".midfillignore").write_text("app.py\n")
    assert scanned(folder, file) == Work(looked_at=3, checked=3, removed=["other/app.py"])


def test_rules_are_asked_again_when_the_list_of_secrets_changed(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned(folder, file)
    monkeypatch.setattr("lsp_server.exclusion.exclusion.LIST_VERSION", b"new")
    assert scanned(folder, file) == Work(looked_at=2, checked=2)
    assert scanned(folder, file) == Work(looked_at=2)


def test_excluded_files_are_not_in_it_and_leave_when_they_become_excluded(folder: Path, file: Path) -> None:
    (folder / ".gitignore").write_text("build/\n")
    (folder / "build").mkdir()
    (folder / "build" / "made.py").write_text("def load(made): ...\n")
    (folder / "pkg" / "aws_credentials.py").write_text("def load(secret): ...\n")
    scanned(folder, file)
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]
    (folder / ".gitignore").write_text("build/\nlib.py\n")
    assert scanned(folder, file).removed == ["pkg/lib.py"]
    assert paths(file) == ["pkg/lib.ts"]
    assert b"def load(path)" not in b"".join(part.read_bytes() for part in file.parent.iterdir())


@pytest.mark.parametrize("name", ["node_modules", ".hidden", "site-packages", "env"])
def test_copies_of_other_projects_are_not_in_it(folder: Path, file: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "copy.py").write_text("def load(): ...\n")
    if name == "env":
        (folder / name / "pyvenv.cfg").touch()
    scanned(folder, file)
    updated(folder, file, f"{name}/copy.py")
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
    named = ["loop/pkg/lib.py", "link.py", "pipe.py", "huge.py", "bad\udcff.py", "a\0.py", "../x.py", "x" * 5000 + ".py"]
    updated(folder, file, *named)
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]


def test_of_files_that_changed_only_these_are_looked_at(folder: Path, file: Path) -> None:
    scanned(folder, file)
    (folder / "pkg" / "lib.py").write_text("def save(path): ...  # longer\n")
    (folder / "pkg" / "new.py").write_text("def load(new): ...\n")
    (folder / "pkg" / "lib.ts").unlink()
    with looked_at_folders() as seen:
        assert updated(folder, file, "pkg/lib.py") == Work(looked_at=1, read=["pkg/lib.py"])
        assert updated(folder, file, "pkg/lib.py", "notes.txt") == Work(looked_at=1)
        work = updated(folder, file, "pkg/new.py", "pkg/lib.ts", "pkg/gone.py")
    assert work == Work(looked_at=1, checked=1, read=["pkg/new.py"], removed=["pkg/lib.ts"])
    assert seen == []
    assert paths(file) == ["pkg/new.py"]


@contextmanager
def looked_at_folders() -> Iterator[list[str]]:
    """The folders whose entries are listed."""
    seen: list[str] = []
    real = os.scandir

    def listed(path: str | os.PathLike[str]) -> object:
        seen.append(os.fspath(path))
        return real(path)

    with mock.patch.object(scanning.os, "scandir", listed):
        yield seen


def test_an_ignore_file_that_changed_concerns_the_files_below_it(folder: Path, file: Path) -> None:
    (folder / "app.py").write_text("load()\n")
    scanned(folder, file)
    (folder / "pkg" / ".gitignore").write_text("lib.py\n")
    work = updated(folder, file, "pkg/.gitignore")
    assert work == Work(looked_at=2, checked=2, removed=["pkg/lib.py"])
    assert paths(file) == ["pkg/lib.ts"]
    (folder / ".midfillignore").write_text("pkg/\n")
    assert updated(folder, file, ".midfillignore") == Work(looked_at=2, checked=2, removed=["pkg/lib.ts"])


def test_a_file_of_an_excluded_folder_does_not_enter_by_its_name(folder: Path, file: Path) -> None:
    (folder / ".gitignore").write_text("pkg/\n")
    assert updated(folder, file, "pkg/lib.py") == Work(looked_at=1, checked=1)
    assert paths(file) == []


def test_folders_on_other_disks_are_asked_about(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "share").mkdir()
    (folder / "share" / "a.py").write_text("def load(): ...\n")
    asked: list[Path] = []
    rules = Rules(rules_of(folder).of_folder, lambda path: asked.append(path) or "it is remote")
    with closing(IndexWriter(file)) as writer:
        assert scan(folder, writer, rules).looked_at == 3
        assert asked == []
        monkeypatch.setattr(Path, "stat", lambda _: mock.Mock(st_dev=-1))  # the workspace folder's
        assert scan(folder, writer, rules).looked_at == 0
    assert asked == [folder / "pkg", folder / "share"]


def test_a_scan_out_of_time_keeps_what_it_did_not_reach(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.py").touch()
    scanned(folder, file)
    (folder / "a.py").write_text("changed = 1\n")
    (folder / "pkg" / "lib.ts").unlink()
    monkeypatch.setattr("lsp_server.context.index.scan._MOST_CPU_S", -1.0)
    work = scanned(folder, file)
    assert (work.read, work.removed, work.is_complete) == (["a.py"], ["pkg/lib.ts"], False)
    assert paths(file) == ["pkg/lib.py"]


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_FOLDERS", "_MOST_INDEX_BYTES"])
def test_a_limit_ends_a_scan(folder: Path, file: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"lsp_server.context.index.scan.{limit}", 1)
    work = scanned(folder, file)
    assert not work.is_complete
    assert len(work.read) == (limit == "_MOST_FILES")


def test_a_full_index_takes_no_new_files(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.context.index.scan._MOST_INDEX_BYTES", 1)
    assert updated(folder, file, "pkg/lib.py") == Work()


@pytest.mark.parametrize("content", [b"not a database, but long enough to look like one" * 100, b""])
def test_a_damaged_index_is_built_anew(folder: Path, file: Path, content: bytes) -> None:
    scanned(folder, file)
    for each in file.parent.iterdir():
        each.write_bytes(content)
    assert not list(look_up(file, ["load"]))
    assert scanned(folder, file).read == ["pkg/lib.py", "pkg/lib.ts"]
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]


DIES = """
import os, pathlib, sys
from lsp_server.context.index.database import IndexWriter
writer = IndexWriter(pathlib.Path(sys.argv[1]))
writer.remove(["pkg/lib.py"])
writer.commit()
os._exit(0)
"""


def test_an_index_is_checked_only_after_an_unclean_end(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    real = sqlite3.connect

    def traced(*arguments: object) -> sqlite3.Connection:
        connection = real(*arguments)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    scanned(folder, file)
    scanned(folder, file)
    assert "PRAGMA quick_check" not in statements
    subprocess.run([sys.executable, "-c", DIES, file], check=True)
    scanned(folder, file)
    scanned(folder, file)
    assert statements.count("PRAGMA quick_check") == 1


def test_many_files_are_committed_together(folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        (folder / f"f{number}.py").write_text(f"def load{number}(): ...\n")
    monkeypatch.setattr("lsp_server.context.index.database._FILES_PER_COMMIT", 4)
    with mock.patch.object(IndexWriter, "commit", autospec=True, side_effect=IndexWriter.commit) as commit:
        scanned(folder, file)
    assert commit.call_count == 3
    assert paths(file, "load9") == ["f9.py"]


def test_half_a_file_is_never_kept(folder: Path, file: Path) -> None:
    scanned(folder, file)
    with closing(IndexWriter(file)) as writer, pytest.raises(sqlite3.Error):
        writer.put("pkg/lib.py", Indexed((1, 1), b""), [], [object()])
    assert paths(file) == ["pkg/lib.py", "pkg/lib.ts"]


def test_an_index_of_another_version_is_built_anew(folder: Path, file: Path) -> None:
    scanned(folder, file)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert scanned(folder, file).read == ["pkg/lib.py", "pkg/lib.ts"]


def test_the_index_is_the_users_alone(folder: Path, file: Path) -> None:
    scanned(folder, file)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


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

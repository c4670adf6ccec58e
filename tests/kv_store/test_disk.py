import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from kv_store import disk_folders
from kv_store.disk import PageFolder
from kv_store.disk_folders import index_files, remove_other_models
from kv_store.interface import BadFileError, FolderInUseError


class BytesCodec:
    """Payloads are bytes, one per token."""

    bytes_per_token = 1

    def encode(self, payload: object, count: int) -> bytes:
        assert isinstance(payload, bytes)
        return payload

    def decode(self, data: bytes, count: int) -> object:
        if data.startswith(b"?"):
            raise ValueError("KV of another model")
        return data


@pytest.fixture
def folder(tmp_path: Path) -> PageFolder:
    return PageFolder(tmp_path / "cache", "model", BytesCodec())


def test_pages_come_back_as_they_were(folder: PageFolder) -> None:
    one, two = folder.put(b"one", 3), folder.put(b"two", 3)
    assert (folder.get(one), folder.get(two)) == (b"one", b"two")
    folder.check([one, two])
    folder.remove(one)
    folder.check([two])
    with pytest.raises(AssertionError, match="files of no page"):
        folder.check([])


def test_another_process_in_the_folder_is_noticed(folder: PageFolder, tmp_path: Path) -> None:
    with pytest.raises(FolderInUseError, match="another process"):
        PageFolder(tmp_path / "cache", "model", BytesCodec())
    PageFolder(tmp_path / "cache", "another model", BytesCodec()).close()
    folder.close()
    PageFolder(tmp_path / "cache", "model", BytesCodec()).close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_only_the_user_may_read_what_is_saved(folder: PageFolder) -> None:
    folder.put(b"one", 3)
    folder.index.write(forgotten=["file.py"])
    assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700
    for path in folder.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = PageFolder(tmp_path, "model", BytesCodec())
    folder.close()
    folder.folder.chmod(0o755)
    PageFolder(tmp_path, "model", BytesCodec())
    assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700


def replace(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (replace(b"on"), "truncated or oversized"),
        (replace(b"one more"), "truncated or oversized"),
        (replace(b"onf"), "checksum differs"),
        (Path.unlink, "cannot be read"),
        (lambda path: (path.unlink(), path.mkdir()), "not a regular file|cannot be read"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "not a regular file"),
        (lambda path: (path.rename(path.with_name("moved")), path.symlink_to("moved")), "cannot be read"),
    ],
)
def test_a_damaged_page_is_refused_by_name(damage: Callable[[Path], object], reason: str, folder: PageFolder) -> None:
    file = folder.put(b"one", 3)
    path = folder.folder / file.name
    damage(path)
    with pytest.raises(BadFileError, match=reason) as caught:
        folder.get(file)
    assert str(caught.value).startswith(f"{path}: ")
    folder.remove(file)  # which must not fail, whatever is there now


def test_a_page_that_the_codec_refuses_is_named(folder: PageFolder) -> None:
    file = folder.put(b"?", 1)
    with pytest.raises(BadFileError, match=f"{file.name}: KV of another model"):
        folder.get(file)


def test_a_size_that_cannot_be_that_many_tokens_is_refused(folder: PageFolder) -> None:
    with pytest.raises(BadFileError, match="3 bytes for 4 tokens"):
        folder.check_file(folder.put(b"one", 4))
    with pytest.raises(AssertionError, match="258 bytes for 1 tokens"):
        folder.put(b"o" * 258, 1)


def test_a_write_that_fails_leaves_nothing_behind(folder: PageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> Path:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no"):
        folder.put(b"one", 3)
    folder.check([])


def test_left_over_files_are_removed_and_foreign_ones_left_alone(folder: PageFolder) -> None:
    kept = folder.put(b"one", 3)
    folder.put(b"two", 3)
    (folder.folder / "000000ff.tmp").write_bytes(b"half")
    (folder.folder / "notes.txt").write_text("mine")
    folder.remove_other_files([kept])
    left = {path.name for path in folder.folder.iterdir()} - {path.name for path in index_files(folder.folder)}
    assert left == {kept.name, "lock", "notes.txt"}


def test_other_models_are_removed_unless_in_use(tmp_path: Path) -> None:
    idle, live = (PageFolder(tmp_path, name, BytesCodec()) for name in ("idle", "live"))
    for folder in (idle, live):
        folder.put(b"one", 3)
    idle.close()
    (tmp_path / "0123456789abcdef").mkdir()
    ours = PageFolder(tmp_path, "ours", BytesCodec())
    (reason,) = remove_other_models(ours.root, ours.folder)
    assert reason.startswith(f"{idle.folder}: ")
    assert not idle.folder.exists()
    assert list(live.folder.glob("*.safetensors"))
    assert (tmp_path / "0123456789abcdef").exists(), "no folder of ours"


def test_who_opens_a_folder_while_it_is_removed_waits_for_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PageFolder(tmp_path, "idle", BytesCodec()).close()
    ours = PageFolder(tmp_path, "ours", BytesCodec())
    opened: list[PageFolder] = []
    refused: list[FolderInUseError] = []
    remove = disk_folders.remove_file

    def open_meanwhile(path: Path) -> None:
        try:
            opened.append(PageFolder(tmp_path, "idle", BytesCodec()))
        except FolderInUseError as error:
            refused.append(error)
        remove(path)

    monkeypatch.setattr(disk_folders, "LOCK_PATIENCE_S", 0.0)
    monkeypatch.setattr(disk_folders, "remove_file", open_meanwhile)
    assert len(remove_other_models(ours.root, ours.folder)) == 1
    monkeypatch.setattr(disk_folders, "remove_file", remove)
    assert refused
    assert not opened
    folder = PageFolder(tmp_path, "idle", BytesCodec())
    assert folder.get(folder.put(b"one", 3)) == b"one"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps files that are open")
@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_lock_on_a_file_that_has_been_removed_meanwhile_is_none(
    all_of_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowLock(FileLock):
        """Before it has locked the file for the first time, another process removes it or its folder."""

        has_waited = False

        def acquire(self, *arguments: object, **named: object) -> object:
            got = super().acquire(*arguments, **named)
            if not SlowLock.has_waited:
                SlowLock.has_waited = True
                path = Path(self.lock_file)
                path.unlink()
                path.parent.rmdir() if all_of_it else path.touch()
            return got

    monkeypatch.setattr(disk_folders, "FileLock", SlowLock)
    folder = PageFolder(tmp_path, "model", BytesCodec())
    assert SlowLock.has_waited
    with pytest.raises(Timeout):
        FileLock(folder.folder / "lock", timeout=0).acquire()
    assert folder.get(folder.put(b"one", 3)) == b"one"


def test_names_are_not_used_again_by_the_next_process(folder: PageFolder, tmp_path: Path) -> None:
    before = folder.put(b"one", 3)
    folder.close()
    assert PageFolder(tmp_path / "cache", "model", BytesCodec()).put(b"two", 3).name > before.name


def test_the_last_of_the_disk_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(tmp_path).free
    folder = PageFolder(tmp_path, "model", BytesCodec(), min_free_bytes=2 * free)
    with pytest.raises(OSError, match="MB are free"):
        folder.put(b"one", 3)
    folder.check([])
    monkeypatch.setattr(folder, "_min_free_bytes", 0)
    assert folder.get(folder.put(b"one", 3)) == b"one"

"""Which settings make one core different from another.

The runtime folder: private, and refused where it is not.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import BadInput
from protocol.rendezvous import (
    ANSWER_SETTINGS,
    IDENTITY_SETTINGS,
    CoreAddress,
    address_file,
    core_settings,
    describe,
    differences,
    has_key_of,
    hold,
    is_held,
    read_address,
    read_or_make_token,
    resolve_engine,
    resolve_model,
    runtime_folder,
    write_address,
)
from protocol.settings import CORE_SETTINGS, Settings, json_name, local_path, option_name


def test_every_setting_that_changes_what_a_core_computes_or_keeps_counts() -> None:
    assert set(CORE_SETTINGS) - set(IDENTITY_SETTINGS) == {"model", "unload_after_s", "exit_after_s"}
    assert set(IDENTITY_SETTINGS) - set(CORE_SETTINGS) == {"engine_key"}
    keeping = {"engine_key", "engine_session_header", "threads", "slots", "store_mb", "disk_mb"}
    assert set(IDENTITY_SETTINGS) - set(ANSWER_SETTINGS) == keeping


def test_differences_are_told_in_one_line() -> None:
    found = differences(core_settings(Settings(store_mb=7, threads=1, exit_after_s=1)), Settings(healing="on"))
    assert describe(found, json_name) == (
        "threads = 1 (requested: 0), storeMb = 7 (requested: 0), healing = auto (requested: on)"
    )
    assert describe(found[1:2], option_name) == "--store-mb = 7 (requested: 0)"
    assert [one.name for one in differences(core_settings(Settings(slots=3)), Settings(), ANSWER_SETTINGS)] == []


def test_another_key_of_the_engine_is_a_difference_that_shows_neither() -> None:
    keyed = core_settings(Settings(engine_key="hush one"))
    assert "hush" not in str(keyed)
    assert differences(keyed, Settings(engine_key="hush one")) == ()
    assert differences(keyed, Settings()) == (), "settings without a key ask for none in particular"
    assert differences(keyed, Settings(engine_key="hush two"), ANSWER_SETTINGS) == ()
    assert describe(differences(keyed, Settings(engine_key="hush two")), json_name) == (
        "engineKey = another key (requested: yours)"
    )
    assert describe(differences(core_settings(Settings()), Settings(engine_key="hush two")), json_name) == (
        "engineKey = none (requested: yours)"
    )
    assert [has_key_of(keyed, Settings(engine_key=key)) for key in ("hush one", "hush two", "")] == [True, False, False]
    assert has_key_of(core_settings(Settings()), Settings(engine_key="hush two"))


def test_what_a_core_does_not_publish_has_its_default() -> None:
    assert differences({}, Settings()) == ()
    assert [one.name for one in differences({"a_new_one": 1}, Settings(dtype="float32"))] == ["dtype"]


ADDRESS = CoreAddress("ws://127.0.0.1:8765/ws", 42, "some/model", {"device": "cpu", "slots": 2, "exact": True}, 9)
posix = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / "deep" / "run"))
    return runtime_folder()


@posix
def test_the_folder_and_its_files_are_private(folder: Path) -> None:
    write_address(address_file(folder, "m"), ADDRESS)
    read_or_make_token(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "x", "pid": "y", "model": "z"}', '{"pid": 1}'])
def test_a_file_that_is_no_address_is_named(folder: Path, text: str) -> None:
    file = address_file(folder, "m")
    file.write_text(text)
    with pytest.raises(BadInput, match=file.name):
        read_address(file)


def test_the_token_is_made_once(folder: Path) -> None:
    token = read_or_make_token(folder)
    assert len(token) >= 32
    assert read_or_make_token(folder) == token


def test_cores_that_start_at_the_same_time_share_the_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Barrier(2)
    opened = os.open

    def open_slowly(path: str | Path, *args: Any, **options: Any) -> int:
        descriptor = opened(path, *args, **options)
        if "token" in Path(path).name:
            time.sleep(0.05)  # time for the other one to find a file without a token in it
        return descriptor

    def start() -> str:
        begun.wait()
        return read_or_make_token(folder)

    monkeypatch.setattr(os, "open", open_slowly)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.submit(start), threads.submit(start)
        assert one.result() == other.result()


@posix
def test_a_token_that_others_can_read_is_refused(folder: Path) -> None:
    read_or_make_token(folder)
    (folder / "token").chmod(0o644)
    with pytest.raises(BadInput, match="chmod 600"):
        read_or_make_token(folder)


def test_model_folders_are_called_by_their_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert resolve_model("model") == str(tmp_path / "model")
    assert resolve_model("some/model") == "some/model"
    (tmp_path / "bundled").mkdir()
    assert resolve_model("bundled") == "bundled"


def test_a_runtime_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / "file" / "run"))
    with pytest.raises(BadInput, match=r"file/run cannot be created: Not a directory"):
        runtime_folder()


@posix
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o720])
def test_a_runtime_folder_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(mode)
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / "run"))
    with pytest.raises(BadInput, match=r"other users can write to the runtime folder .*run .* chmod 700"):
        runtime_folder()


@posix
def test_a_runtime_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(BadInput, match="belongs to the user with the id"):
        runtime_folder()


@pytest.mark.parametrize(
    ("token", "reason"), [("", "is empty"), *((token, "holds no token") for token in ("tök", "a b", "a\nb", "\x00"))]
)
def test_what_is_no_token_is_refused(folder: Path, token: str, reason: str) -> None:
    read_or_make_token(folder)
    (folder / "token").write_text(token, encoding="utf-8")
    with pytest.raises(BadInput, match=reason):
        read_or_make_token(folder)


def test_a_token_that_is_a_folder_is_refused(folder: Path) -> None:
    (folder / "token").mkdir(mode=0o700)
    with pytest.raises(BadInput, match=r"token cannot be used: Is a directory"):
        read_or_make_token(folder)


def test_a_full_disk_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    @contextmanager
    def full(descriptor: int, *_: Any, **__: Any) -> Iterator[Full]:
        os.close(descriptor)
        yield Full()

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(BadInput, match=r"token cannot be used: No space left on device"):
        read_or_make_token(folder)
    with pytest.raises(BadInput, match=r"core-.*json cannot be used: No space left on device"):
        write_address(address_file(folder, "m"), ADDRESS)
    assert [file.name for file in folder.iterdir() if file.suffix != ".lock"] == []


def test_a_folder_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for use in (read_or_make_token, lambda folder: is_held(address_file(folder, "m"))):
        with pytest.raises(BadInput, match=r"file/.* cannot be used: "):
            use(tmp_path / "file")


def test_a_core_runs_while_its_lock_is_held(folder: Path) -> None:
    file = address_file(folder, "m")
    assert not is_held(file)
    with hold(file) as first, hold(file) as second:
        assert (first, second) == (True, False)
        assert is_held(file)
        assert not is_held(address_file(folder, "another"))
    assert not is_held(file)


def test_an_address_of_an_older_core_is_read(folder: Path) -> None:
    file = address_file(folder, "m")
    file.write_text('{"url": "ws://127.0.0.1:1/ws", "pid": 7, "model": "m"}')
    address = read_address(file)
    assert (address.pid, address.protocol_version, address.settings) == (7, 1, {})


@pytest.mark.parametrize("name", ["", "~nosuchuser/x", "a" * 300, "x/" + "y" * 5000, "\0", "no/such"])
def test_what_can_be_no_path_is_a_name(name: str) -> None:
    assert local_path(name) is None
    assert resolve_model(name) == name
    assert resolve_engine(f"llama-server={name}") == f"llama-server={name}"

"""Settings and the connection to the core, as a client sees them change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.usage.database import statistics_file
from protocol.messages import CompletionRequest
from protocol.rendezvous import read_address, runtime_folder
from protocol.settings import Settings
from tests.lsp_server.editor import PATIENCE_S, Editor, connected_editor, editor_on, until
from tests.lsp_server.fake_core import FakeCore, never


async def test_pulls_the_settings_from_a_client_that_only_says_they_changed(editor: Editor, core: FakeCore) -> None:
    editor.configuration = {"core": core.url, "coreToken": core.token, "maxTokens": 7}
    editor.configure(None)
    editor.open("a")
    async with asyncio.timeout(PATIENCE_S):
        while not core.asked or core.asked[-1].max_tokens != 7:  # the answer to the server's question is on its way
            await editor.suggest(0, 1)


async def test_a_key_that_is_no_setting_is_named_once_and_the_others_are_taken(editor: Editor, core: FakeCore) -> None:
    ours = {"core": core.url, "coreToken": core.token, "maxTokns": 3, "multiLine": False}
    for _ in range(2):
        editor.configure({"midfill": ours})
    editor.open("")
    assert await editor.suggest(0, 0)
    assert editor.messages == ["midfill: unknown setting maxTokns: did you mean maxTokens?"]
    assert core.asked[-1].max_tokens == 64
    assert core.asked[-1].stop.indent is None


async def test_a_bad_value_is_named_and_the_old_settings_stay(editor: Editor, core: FakeCore) -> None:
    editor.configure({"maxTokens": 10**12, "multiLine": False})
    editor.open("")
    assert await editor.suggest(0, 0)
    assert editor.messages == ["midfill: maxTokens = 1000000000000: must be at most 4096"]
    assert core.asked[-1].max_tokens == 64
    assert core.asked[-1].stop.indent == 0


async def test_with_bad_settings_of_the_client_those_of_the_command_line_hold(core: FakeCore) -> None:
    initial = Settings(core=core.url, core_token=core.token, statistics=False)
    before = saved_statistics()
    async with connected_editor(initial) as editor:
        await editor.start({"maxTokens": 0})
        await editor.until_state("ready")
        assert editor.messages == ["midfill: maxTokens = 0: must be at least 1"]
        editor.open("a")
        assert await editor.suggest(0, 1)
    assert saved_statistics() == before


def saved_statistics() -> bytes:
    return statistics_file().read_bytes() if statistics_file().exists() else b""


@pytest.mark.parametrize("others", [{"pylsp": {"plugins": {}}}, {}, []])
async def test_settings_of_other_servers_change_nothing(editor: Editor, core: FakeCore, others: object) -> None:
    for settings in ({"midfill": {"core": core.url, "coreToken": core.token, "maxTokens": 7}}, others):
        editor.configure(settings)
    editor.open("a")
    assert await editor.suggest(0, 1)
    assert core.asked[-1].max_tokens == 7
    assert editor.messages == []


async def test_unknown_key_at_the_start_is_named_and_the_session_goes_on(core: FakeCore) -> None:
    async with connected_editor(Settings(core=core.url, core_token=core.token)) as editor:
        await editor.start({"modle": "x"})
        assert "unknown setting modle: did you mean model?" in editor.messages[0]
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggest(0, 1)


async def test_restart_command_reconnects(editor: Editor, core: FakeCore) -> None:
    editor.statuses.clear()
    await editor.execute("midfill.restartCore")
    await editor.until_state("ready")
    assert [status.state for status in editor.statuses] == ["stopped", "starting", "ready"]


async def test_the_session_outlives_the_connection_to_the_core(editor: Editor, core: FakeCore) -> None:
    core.answer = never
    editor.open("a")
    pending = asyncio.create_task(editor.suggested_text(0, 1))
    await until(lambda: core.asked)
    await core.drop_connections()
    assert await pending == ""

    async def back(request: CompletionRequest) -> str:
        return request.prompt.increment

    core.answer = back
    editor.change(2, (0, 1), (0, 1), "b")
    await editor.until_state("ready")
    assert await editor.suggested_text(0, 2) == "ab"


async def test_two_clients_have_their_own_documents_and_sessions(core: FakeCore) -> None:
    async with editor_on(core) as one, editor_on(core) as other:
        one.open("one")
        other.open("another")
        assert await one.suggest(0, 3)
        assert await other.suggest(0, 7)
        assert [request.prompt.increment for request in core.asked] == ["one", "another"]
        assert len({request.session for request in core.asked}) == 2


@pytest.fixture
def fake_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Lets language servers start fake cores; the file holds a line for each: its process, and its model."""
    starts = tmp_path / "starts"

    def fake_command(settings: Settings, log_file: Path) -> list[str]:
        options = ["--model", settings.model, "--store-mb", str(settings.store_mb), "--starts", str(starts)]
        return [sys.executable, str(Path(__file__).with_name("fake_core.py")), *options]

    monkeypatch.setattr("lsp_server.core.target.core_command", fake_command)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    starts.touch()
    yield starts
    for pid in _pids(starts):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _pids(starts: Path) -> list[int]:
    return [int(line) for line in starts.read_text().split()]


async def test_a_model_s_name_that_is_being_typed_starts_no_core(
    fake_starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.server.SETTLE_S", 0.3)
    async with connected_editor() as editor:
        await editor.start({})
        await editor.until_state("ready")
        for name in ("Q", "Qw", "Qwen", "bundled", "Qwen/Qwen"):
            editor.configure({"model": name})
            await _listed(editor)
        await until(lambda: len(_pids(fake_starts)) == 2)
        await editor.until_state("ready")
        models = {read_address(file).model for file in runtime_folder().glob("core-*.json")}  # type: ignore[union-attr]
        assert models == {"bundled", "Qwen/Qwen"}


async def test_a_core_with_other_settings_is_replaced(fake_starts: Path) -> None:
    async with connected_editor() as editor:
        await editor.start({"storeMb": 100})
        await editor.until_state("ready")
        (first,) = _pids(fake_starts)
        editor.configure({"storeMb": 200, "exitAfterS": 7})
        await until(lambda: len(_pids(fake_starts)) == 2)
        await editor.until_state("ready")
        assert await _listed(editor) == [("bundled", "ready", _pids(fake_starts)[1], 200)]
        editor.configure({"storeMb": 200, "exitAfterS": 8, "maxTokens": 9})  # neither concerns what the core does
        await asyncio.sleep(0.1)
        assert len(_pids(fake_starts)) == 2
    assert first != _pids(fake_starts)[1]


async def _listed(editor: Editor) -> list[tuple[str, str, int, int]]:
    listed: Any = await editor.execute("midfill.listCores")
    return [(core["model"], core["state"], core["pid"], core["settings"].get("store_mb", 0)) for core in listed]


async def test_restarting_the_core_starts_another_process(fake_starts: Path) -> None:
    async with connected_editor() as editor:
        await editor.start({})
        await editor.until_state("ready")
        await editor.execute("midfill.restartCore")
        await until(lambda: len(_pids(fake_starts)) == 2)
        await editor.until_state("ready")
        assert editor.messages == []


async def test_a_core_that_is_stopped_is_not_started_again_by_any_client(fake_starts: Path) -> None:
    async with connected_editor() as one, connected_editor() as other:
        for editor in (one, other):
            await editor.start({})
            await editor.until_state("ready")
        await one.execute("midfill.stopCore")
        for editor in (one, other):
            await until(lambda editor=editor: "midfill core" in editor.statuses[-1].message)  # type: ignore[misc]
            assert editor.statuses[-1].state == "stopped"
        assert len(_pids(fake_starts)) == 1
        await other.execute("midfill.restartCore")
        for editor in (one, other):
            await editor.until_state("ready")
        assert len(_pids(fake_starts)) == 2


async def test_the_model_is_unloaded_on_request(editor: Editor, core: FakeCore) -> None:
    await editor.execute("midfill.unloadModel")
    await until(lambda: core.unloads == 1)


async def test_a_runtime_folder_that_cannot_be_used_is_shown(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    async with connected_editor() as editor:
        await editor.start({})
        await editor.until_state("failed")
        assert "other users can write to the runtime folder" in editor.statuses[-1].message
        (shown,) = editor.messages
        for command in ("restartCore", "stopCore"):
            await _fails(editor, command, "other users can write to the runtime folder")
            await editor.until_state("failed")
        assert editor.messages == [shown]


async def _fails(editor: Editor, command: str, reason: str) -> None:
    with pytest.raises(JsonRpcException, match=reason) as failure:
        await editor.execute(f"midfill.{command}")
    assert failure.value.code == types.LSPErrorCodes.RequestFailed


async def test_a_command_that_cannot_be_carried_out_fails_in_one_line_of_the_log(
    core: FakeCore, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url})  # without a token
        await editor.until_state("failed")
        messages = list(editor.messages)
        caplog.clear()
        await _fails(editor, "unloadModel", "not connected to a core")
        await _fails(editor, "stopCore", "is on another machine")
        assert editor.messages == messages
        assert editor.statuses[-1].state == "failed"
    ours = [(record.levelno, record.exc_info) for record in caplog.records if record.name.startswith("lsp_server")]
    assert ours == [(logging.WARNING, None)] * 2


async def test_a_core_that_stays_when_it_is_told_to_stop_is_connected_to_again(
    fake_starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stays(*_: object) -> None:
        raise PermissionError("process 7 is not ours")

    for module in ("features.cores", "core.local_cores"):
        monkeypatch.setattr(f"lsp_server.{module}.end_core", stays)
    async with connected_editor() as editor:
        await editor.start({})
        for command in ("stopCore", "restartCore"):
            await editor.until_state("ready")
            editor.statuses.clear()
            await _fails(editor, command, "process 7 is not ours")
        await editor.until_state("ready")
        assert len(_pids(fake_starts)) == 1

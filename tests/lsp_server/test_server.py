"""What the client is told without having asked.

The progress that clients show while the model loads, and while the prompt of a document is prefilled.

Settings and the connection to the core, as a client sees them change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.notices import Notices
from lsp_server.usage.statistics import statistics_file
from protocol.errors import BadModel
from protocol.messages import CompletionRequest, CoreStatus
from protocol.rendezvous import read_address, runtime_folder
from protocol.settings import Settings
from tests.lsp_server.editor import PATIENCE_S, URI, Editor, connected_editor, editor_on, until
from tests.lsp_server.fake_core import READY, FakeCore, fails, never

if TYPE_CHECKING:
    from pygls.progress import Progress

    from lsp_server.notices import ShownProgress


async def test_tells_the_cost_of_an_answer(editor: Editor) -> None:
    editor.open("a")
    await editor.suggest(0, 1)
    usage = await editor.last_usage()
    assert (usage.textDocument.uri, usage.version, usage.position.character) == (URI, 1, 1)
    assert (usage.isPrefetch, usage.source, usage.cacheOutcome, usage.usage.recomputed_tokens) == (False, "core", "hit", 1)


async def test_clients_that_do_not_know_resync_get_words(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, experimental=False)
        editor.open("a\n")
        editor.change(2, (0, 1), (0, 0), "x")
        await until(lambda: editor.messages)
        assert "before its start" in editor.messages[0]
        assert "closed and reopened" in editor.messages[0]
        assert editor.statuses == []
        assert editor.usages == []


@pytest.mark.parametrize(
    ("uri", "name"), [("file:///a/b%20c.py", "b c.py"), ("nb.ipynb#python", "nb.ipynb"), ("file://[x/a.py", "a.py"), ("", "")]
)
async def test_a_long_prefill_is_named_by_its_file_whatever_the_uri(uri: str, name: str) -> None:
    shown: list[str] = []
    notices = Notices(lambda *_: None, lambda _: None, cast("Progress", None))
    notices._prefill = cast("ShownProgress", SimpleNamespace(update=lambda text, *_: shown.append(text)))
    notices.prefill(uri, (5, 10))
    assert shown == [f"reading {name}"]


async def test_a_model_that_cannot_be_used_is_shown(editor: Editor, core: FakeCore) -> None:
    core.answer = fails(BadModel("no FIM markers"))
    editor.open("a")
    assert await editor.suggest(0, 1) == []
    await core.set_status(CoreStatus("failed", "fake", detail="fake has no FIM markers"))
    await until(lambda: editor.messages)
    assert editor.messages == ["midfill: fake has no FIM markers"]
    assert await editor.suggest(0, 1) == []


async def test_wrong_token_is_shown_once_and_the_session_goes_on(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": "wrong"})
        await editor.until_state("failed")
        assert len(editor.messages) == 1
        assert "refused the token" in editor.messages[0]
        editor.open("a")
        assert await editor.suggest(0, 1) == []
        editor.configure({"core": core.url, "coreToken": core.token})
        await editor.until_state("ready")
        assert await editor.suggest(0, 1)


def kinds(editor: Editor) -> list[str]:
    return [value["kind"] for value in editor.progress]


def last(editor: Editor) -> tuple[Any, Any]:
    return editor.progress[-1].get("message"), editor.progress[-1].get("percentage")


@asynccontextmanager
async def reading(core: FakeCore, *, progress: bool = True) -> AsyncIterator[tuple[Editor, asyncio.Task[str], asyncio.Event]]:
    """An editor, its request for a suggestion, and the event that ends the reading of the prompt."""
    read = core.hold("x")
    async with editor_on(core, progress=progress) as editor:
        editor.open("a")
        asked = asyncio.create_task(editor.suggested_text(0, 1))
        await until(lambda: core.asked)
        await core.report_prefill(512, 1280)
        yield editor, asked, read
        read.set()
        await asked


async def test_a_long_prefill_is_shown_with_the_file_and_ends_with_the_answer(core: FakeCore) -> None:
    async with reading(core) as (editor, asked, read):
        await until(lambda: kinds(editor)[-1:] == ["report"])
        assert last(editor) == ("reading a.py", 40)
        await core.report_prefill(1024, 1280)
        await until(lambda: last(editor) == ("reading a.py", 80))
        read.set()
        assert await asked == "x"
        await until(lambda: kinds(editor)[-1] == "end")
        assert kinds(editor).count("begin") == 1


async def test_a_newer_request_continues_the_progress(core: FakeCore) -> None:
    async with reading(core) as (editor, overtaken, read):
        await until(lambda: kinds(editor)[-1:] == ["report"])
        editor.change(2, (0, 1), (0, 1), "b")
        assert await overtaken == ""
        asked = asyncio.create_task(editor.suggested_text(0, 2))
        await until(lambda: len(core.asked) == 2)
        await core.report_prefill(1024, 1280)
        await until(lambda: last(editor) == ("reading a.py", 80))
        read.set()
        assert await asked == "x"
        await until(lambda: kinds(editor)[-1] == "end")
        assert kinds(editor).count("begin") == 1


async def test_the_progress_ends_when_the_core_says_nothing_more(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.notices.PREFILL_SILENCE_S", 0.1)
    async with reading(core) as (editor, _, _):
        await until(lambda: kinds(editor)[-1:] == ["end"])


async def test_without_the_capability_nothing_is_sent(core: FakeCore) -> None:
    async with reading(core, progress=False) as (editor, asked, read):
        await core.report_prefill(5, 0)  # makes no sense, and is ignored
        read.set()
        assert await asked == "x"
    assert editor.progress == []


async def test_what_was_asked_for_arrives_when_the_model_is_loaded(core: FakeCore) -> None:
    loaded = asyncio.Event()

    async def answer(request: CompletionRequest) -> str:
        await loaded.wait()
        return request.prompt.increment

    core.answer, core.status = answer, CoreStatus("unloaded", "fake")
    async with editor_on(core, state="unloaded", progress=True) as editor:
        editor.open("a")
        overtaken = asyncio.create_task(editor.suggested_text(0, 1))
        await until(lambda: core.asked)
        await core.set_status(CoreStatus("loading", "fake", detail="reading weights", progress=0.25))
        await until(lambda: editor.progress)
        assert (editor.progress[0]["kind"], editor.progress[0]["percentage"]) == ("begin", 25)
        editor.change(2, (0, 1), (0, 1), "b")
        assert await overtaken == ""
        asked = asyncio.create_task(editor.suggested_text(0, 2))
        await until(lambda: len(core.asked) == 2)
        await core.set_status(READY)
        loaded.set()
        assert await asked == "ab"
        await until(lambda: editor.progress[-1]["kind"] == "end")


async def test_a_popup_does_not_wait_for_the_model_but_it_is_set_to_work(core: FakeCore) -> None:
    core.status = CoreStatus("unloaded", "fake")
    async with editor_on(core, state="unloaded", inline=False) as editor:
        editor.open("a")
        params = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(0, 1))
        result = await editor.text_document_completion_async(params)
        assert isinstance(result, types.CompletionList)
        assert not result.items
        await until(lambda: core.requests)
        assert core.asked == []


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


async def test_what_copilots_clients_tell_of_themselves_is_no_setting(core: FakeCore) -> None:
    about = {"editorInfo": {"name": "Emacs", "version": "28.2"}, "editorPluginInfo": {"name": "copilot.el"}}
    async with editor_on(core, settings={**about, "networkProxy": {}}) as editor:
        await editor.until_state("ready")
        assert editor.messages == []


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


@pytest.fixture
def fake_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Lets language servers start fake cores; the file holds a line for each: its process, and its model."""
    starts = tmp_path / "starts"

    def fake_command(settings: Settings, log_file: Path) -> list[str]:
        options = ["--model", settings.model, "--store-mb", str(settings.store_mb), "--starts", str(starts)]
        return [sys.executable, str(Path(__file__).with_name("fake_core.py")), *options]

    monkeypatch.setattr("lsp_server.core_client.link.core_command", fake_command)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    starts.touch()
    yield starts
    for pid in _pids(starts):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _pids(starts: Path) -> list[int]:
    return [int(line) for line in starts.read_text().split()]


async def test_a_model_s_name_that_is_being_typed_starts_no_core(fake_starts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    for module in ("features.commands", "core_client.processes"):
        monkeypatch.setattr(f"lsp_server.{module}.end_core", stays)
    async with connected_editor() as editor:
        await editor.start({})
        for command in ("stopCore", "restartCore"):
            await editor.until_state("ready")
            editor.statuses.clear()
            await _fails(editor, command, "process 7 is not ours")
        await editor.until_state("ready")
        assert len(_pids(fake_starts)) == 1

"""The language server as its client sees it, against a fake core."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcRequestCancelled

from protocol.errors import BadModel
from protocol.messages import CompletionRequest, CoreStatus
from protocol.settings import Settings

from .editor import URI, Editor, connected_editor, until
from .fake_core import READY, FakeCore


async def test_suggests_what_the_core_answers(editor: Editor, core: FakeCore) -> None:
    editor.open("def f(x):\n    ")
    items = await editor.suggest(1, 4)
    assert [item.insert_text for item in items] == ["x = 1"]
    assert items[0].range == types.Range(types.Position(1, 4), types.Position(1, 4))
    assert core.asked[-1].prompt.increment == "def f(x):\n    "


async def test_tells_the_cost_before_the_answer(editor: Editor) -> None:
    editor.open("a")
    await editor.suggest(0, 1)
    usage = editor.usages[-1]
    assert (usage.textDocument.uri, usage.version, usage.position.character) == (URI, 1, 1)
    assert (usage.ahead, usage.source, usage.heat, usage.usage.recomputed_tokens) == (False, "core", "hot", 1)


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 9), ("utf-16", 7), ("utf-32", 6)])
async def test_counts_columns_as_negotiated(core: FakeCore, encoding: str, character: int) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, encoding=encoding)
        await editor.until_state("ready")
        assert editor.server is not None
        assert editor.server.capabilities.position_encoding == encoding
        editor.open('x = "😋"\n')
        editor.change(2, (0, character), (0, character), "y")
        items = await editor.suggest(0, character + 1)
        assert (await editor.document_hash()).sha256 == hashlib.sha256('x = "😋y"\n'.encode()).hexdigest()
        assert core.asked[-1].prompt.increment == 'x = "😋y'
        assert items[0].range == types.Range(types.Position(0, character + 1), types.Position(0, character + 1))


async def test_latest_request_wins_and_the_older_is_answered_at_once(editor: Editor, core: FakeCore) -> None:
    editor.open("ab")
    release = asyncio.Event()

    async def wait_on_first(request: CompletionRequest) -> str:
        if request.prompt.increment == "a":
            await release.wait()
        return request.prompt.increment

    core.answer = wait_on_first
    first = asyncio.create_task(editor.suggested_text(0, 1))
    await until(lambda: core.asked)
    assert await editor.suggested_text(0, 2) == "ab"
    assert await first == ""
    await until(lambda: core.cancelled)
    release.set()


async def test_an_edit_answers_what_it_outdates(editor: Editor, core: FakeCore) -> None:
    async def never(_: CompletionRequest) -> str:
        return await asyncio.Future[str]()

    core.answer = never
    editor.open("a")
    pending = asyncio.create_task(editor.suggested_text(0, 1))
    await until(lambda: core.asked)
    editor.change(2, (0, 0), (0, 0), "x")
    assert await pending == ""


async def test_cancelled_requests_end_in_the_core(editor: Editor, core: FakeCore) -> None:
    async def never(_: CompletionRequest) -> str:
        return await asyncio.Future[str]()

    core.answer = never
    editor.open("a")
    params = types.InlineCompletionParams(
        context=types.InlineCompletionContext(types.InlineCompletionTriggerKind.Invoked),
        text_document=types.TextDocumentIdentifier(URI),
        position=types.Position(0, 1),
    )
    request = editor.protocol.send_request(types.TEXT_DOCUMENT_INLINE_COMPLETION, params, msg_id="r1")
    await until(lambda: core.asked)
    editor.protocol.notify(types.CANCEL_REQUEST, types.CancelParams("r1"))
    with pytest.raises(JsonRpcRequestCancelled):
        await asyncio.wrap_future(request)
    await until(lambda: core.cancelled)


async def test_typing_what_is_suggested_asks_nobody(editor: Editor, core: FakeCore) -> None:
    editor.open("\n")
    assert await editor.suggested_text(0, 0) == "x = 1"
    for typed in range(1, 5):
        editor.change(typed + 1, (0, typed - 1), (0, typed - 1), "x = 1"[typed - 1])
        assert await editor.suggested_text(0, typed) == "x = 1"[typed:]
    assert len(core.asked) == 1
    assert (editor.usages[-1].source, editor.usages[-1].usage.forwards) == ("typed", 0)
    editor.change(6, (0, 4), (0, 4), "2")
    await editor.suggest(0, 5)
    assert len(core.asked) == 2


async def test_moving_the_cursor_makes_its_prompt_resident(editor: Editor, core: FakeCore) -> None:
    editor.open("a\nb\n")
    await until(lambda: core.requests)
    editor.move_cursor(1, 1)
    await until(lambda: len(editor.usages) == 2)
    assert core.requests[-1].max_tokens == 0
    assert core.requests[-1].prompt.increment == "a\nb"
    assert editor.usages[-1].ahead


async def test_a_move_to_the_place_that_is_asked_about_disturbs_nothing(editor: Editor, core: FakeCore) -> None:
    release = asyncio.Event()

    async def wait(_: CompletionRequest) -> str:
        await release.wait()
        return "y"

    core.answer = wait
    editor.open("a")
    pending = asyncio.create_task(editor.suggested_text(0, 1))
    await until(lambda: core.asked)
    editor.move_cursor(0, 1)
    await editor.document_hash()
    release.set()
    assert await pending == "y"


async def test_nothing_in_a_disabled_language(editor: Editor, core: FakeCore) -> None:
    settings = {"core": core.url, "coreToken": core.token, "disabledLanguages": ["plaintext"]}
    params = types.DidChangeConfigurationParams(settings={"midfill": settings})
    editor.workspace_did_change_configuration(params)
    editor.open("a", language="plaintext")
    assert await editor.suggest(0, 1) == []
    assert core.requests == []


async def test_pulls_the_settings_from_a_client_that_only_says_they_changed(editor: Editor, core: FakeCore) -> None:
    editor.configuration = {"core": core.url, "coreToken": core.token, "maxTokens": 7}
    editor.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=None))
    editor.open("a")
    await editor.document_hash()
    await asyncio.sleep(0.05)
    await editor.suggest(0, 1)
    assert core.asked[-1].max_tokens == 7


async def test_unknown_settings_key_is_named_and_the_old_settings_stay(editor: Editor, core: FakeCore) -> None:
    params = types.DidChangeConfigurationParams(settings={"maxTokns": 3, "multiLine": False})
    editor.workspace_did_change_configuration(params)
    await until(lambda: editor.messages)
    assert "maxTokns = 3" in editor.messages[0]
    assert "maxTokens" in editor.messages[0]
    editor.open("")
    assert await editor.suggest(0, 0)
    assert core.asked[-1].max_tokens == 64
    assert core.asked[-1].stop.indent == 0


async def test_unknown_key_at_the_start_is_named_and_the_session_goes_on(core: FakeCore) -> None:
    async with connected_editor(Settings(core=core.url, core_token=core.token)) as editor:
        await editor.start({"modle": "x"})
        assert "modle = 'x'" in editor.messages[0]
        await editor.until_state("ready")
        editor.open("a")
        assert await editor.suggest(0, 1)


async def test_position_beyond_the_document_is_refused_and_nothing_lost(editor: Editor) -> None:
    editor.open("a\n")
    with pytest.raises(JsonRpcInvalidParams, match=r"line 7 is not in .*lines 0 to 1"):
        await editor.suggest(7, 0)
    assert await editor.suggest(0, 1)


async def test_edit_beyond_the_document_asks_for_a_resync(editor: Editor, core: FakeCore) -> None:
    editor.open("a\n")
    editor.change(2, (9, 0), (9, 0), "x")
    await until(lambda: editor.resyncs)
    assert editor.resyncs[0].textDocument.uri == URI
    assert "line 9" in editor.resyncs[0].reason
    editor.change(3, (0, 0), (0, 0), "y")
    assert await editor.suggest(0, 0) == []
    assert (await editor.document_hash()).length == 2  # neither was applied
    editor.replace_all(4, "xay\n")
    assert await editor.suggest(0, 1)
    assert core.asked[-1].prompt.increment == "x"
    assert len(editor.resyncs) == 1


async def test_version_that_goes_backwards_asks_for_a_resync(editor: Editor) -> None:
    editor.open("a\n", version=5)
    editor.change(4, (0, 0), (0, 0), "x")
    await until(lambda: editor.resyncs)
    assert "version 4" in editor.resyncs[0].reason
    assert "version 5" in editor.resyncs[0].reason
    editor.open("xa\n", version=6)
    assert await editor.suggest(0, 1)


async def test_clients_that_do_not_know_resync_are_told_in_words(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, experimental=False)
        editor.open("a\n")
        editor.change(2, (9, 0), (9, 0), "x")
        await until(lambda: editor.messages)
        assert "line 9" in editor.messages[0]
        assert "closed and opened again" in editor.messages[0]
        assert editor.statuses == []
        assert editor.usages == []


async def test_a_request_that_cannot_be_read_is_answered(editor: Editor) -> None:
    with pytest.raises(JsonRpcInvalidParams):
        await editor.ask_in_json(types.TEXT_DOCUMENT_INLINE_COMPLETION, {"position": "nowhere"})


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
async def test_tolerates_trigger_kinds(editor: Editor, kind: int) -> None:
    editor.open("a")
    params = {
        "textDocument": {"uri": URI},
        "position": {"line": 0, "character": 1},
        "context": {"triggerKind": kind},
    }
    result = await editor.ask_in_json(types.TEXT_DOCUMENT_INLINE_COMPLETION, params)
    assert len(result.items) == 1


async def test_popup_for_clients_without_inline_completion(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, inline=False)
        assert editor.server is not None
        assert editor.server.capabilities.completion_provider is not None
        await editor.until_state("ready")
        editor.open("😋 fo")
        identifier = types.TextDocumentIdentifier(URI)
        result = await editor.text_document_completion_async(types.CompletionParams(identifier, types.Position(0, 5)))
        assert isinstance(result, types.CompletionList)
        assert result.is_incomplete
        (item,) = result.items
        assert item.filter_text == "fox = 1"
        assert item.text_edit == types.TextEdit(types.Range(types.Position(0, 3), types.Position(0, 5)), "fox = 1")


async def test_no_popup_for_clients_with_inline_completion(editor: Editor) -> None:
    assert editor.server is not None
    assert editor.server.capabilities.completion_provider is None
    assert editor.server.capabilities.inline_completion_provider is not None


async def test_nothing_while_the_model_loads_but_it_is_set_to_work(core: FakeCore) -> None:
    core.status = CoreStatus("unloaded", "fake")
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, progress=True)
        await editor.until_state("unloaded")
        editor.open("a")
        assert await editor.suggest(0, 1) == []
        await until(lambda: core.requests)
        assert core.asked == []
        await core.set_status(CoreStatus("loading", "fake", detail="reading weights", progress=0.25))
        await until(lambda: editor.progress)
        assert (editor.progress[0]["kind"], editor.progress[0]["percentage"]) == ("begin", 25)
        await core.set_status(READY)
        await until(lambda: editor.progress[-1]["kind"] == "end")
        assert await editor.suggest(0, 1)


async def test_a_model_that_cannot_be_used_is_shown(editor: Editor, core: FakeCore) -> None:
    async def fail(_: CompletionRequest) -> str:
        raise BadModel("no FIM markers")

    core.answer = fail
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
        params = types.DidChangeConfigurationParams(settings={"core": core.url, "coreToken": core.token})
        editor.workspace_did_change_configuration(params)
        await editor.until_state("ready")
        assert await editor.suggest(0, 1)


async def test_restart_command_reconnects(editor: Editor, core: FakeCore) -> None:
    editor.statuses.clear()
    await editor.workspace_execute_command_async(types.ExecuteCommandParams("midfill.restartCore", []))
    await editor.until_state("ready")
    assert [status.state for status in editor.statuses] == ["stopped", "starting", "ready"]


async def test_the_session_outlives_the_connection_to_the_core(editor: Editor, core: FakeCore) -> None:
    async def never(_: CompletionRequest) -> str:
        return await asyncio.Future[str]()

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


async def test_closed_documents_are_forgotten(editor: Editor, core: FakeCore) -> None:
    editor.open("a")
    await editor.suggest(0, 1)
    editor.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(URI)))
    await until(lambda: core.forgotten)
    assert core.forgotten == [core.asked[0].session]
    with pytest.raises(JsonRpcInvalidParams, match="is not open"):
        await editor.suggest(0, 1)


async def test_two_clients_have_their_own_documents_and_sessions(core: FakeCore) -> None:
    settings = {"core": core.url, "coreToken": core.token}
    async with connected_editor() as one, connected_editor() as other:
        for editor, text in ((one, "one"), (other, "another")):
            await editor.start(settings)
            await editor.until_state("ready")
            editor.open(text)
        assert await one.suggest(0, 3)
        assert await other.suggest(0, 7)
        assert [request.prompt.increment for request in core.asked] == ["one", "another"]
        assert len({request.session for request in core.asked}) == 2

"""The messages of LSP as an editor sends them, answered by way of a fake core."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcRequestCancelled

from protocol.messages import CompletionRequest
from tests.lsp_server.editor import URI, Editor, connected_editor, until
from tests.lsp_server.fake_core import FakeCore


async def test_suggests_what_the_core_answers(editor: Editor, core: FakeCore) -> None:
    editor.open("def f(x):\n    ")
    items = await editor.suggest(1, 4)
    assert [item.insert_text for item in items] == ["x = 1"]
    assert items[0].range == types.Range(types.Position(1, 4), types.Position(1, 4))
    assert core.asked[-1].prompt.increment == "def f(x):\n    "


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
    usage = await editor.last_usage()
    assert (usage.source, usage.usage.forwards) == ("typed", 0)
    editor.change(6, (0, 4), (0, 4), "2")
    await editor.suggest(0, 5)
    assert len(core.asked) == 2


async def test_moving_the_cursor_makes_its_prompt_resident(editor: Editor, core: FakeCore) -> None:
    editor.open("a\nb\n")
    await until(lambda: editor.usages)  # or the move supersedes what opening asked for
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


@pytest.mark.parametrize("change", [{"text": None}, {"range": {"start": {"line": 0}}, "text": "x"}, "x"])
async def test_a_change_that_cannot_be_read_asks_for_a_resync_once(
    editor: Editor, caplog: pytest.LogCaptureFixture, change: object
) -> None:
    editor.open("a\n")
    params = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [change]}
    for _ in range(2):
        editor.tell_in_json(types.TEXT_DOCUMENT_DID_CHANGE, params)
    assert (await editor.document_hash()).length == 2
    assert [(resync.textDocument.uri, resync.reason[:23]) for resync in editor.resyncs] == [
        (URI, "textDocument/didChange:")
    ]
    assert json.dumps(change) in editor.resyncs[0].reason
    told = [record.levelname for record in caplog.records if editor.resyncs[0].reason in record.message]
    assert told == ["WARNING"] * 2
    assert await editor.suggest(0, 0) == []
    editor.replace_all(4, "xa\n")
    assert await editor.suggest(0, 1)


async def test_version_that_goes_backwards_asks_for_a_resync(editor: Editor) -> None:
    editor.open("a\n", version=5)
    editor.change(4, (0, 0), (0, 0), "x")
    await until(lambda: editor.resyncs)
    assert "version 4" in editor.resyncs[0].reason
    assert "version 5" in editor.resyncs[0].reason
    editor.open("xa\n", version=6)
    assert await editor.suggest(0, 1)


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


async def test_closed_documents_are_released(editor: Editor, core: FakeCore) -> None:
    editor.open("a")
    await editor.suggest(0, 1)
    editor.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(URI)))
    await until(lambda: core.released)
    assert core.released == [core.asked[0].session]
    assert core.forgotten == []
    with pytest.raises(JsonRpcInvalidParams, match="is not open"):
        await editor.suggest(0, 1)

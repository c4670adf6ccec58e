"""The progress that clients show while the model loads."""

from __future__ import annotations

import asyncio

from lsprotocol import types

from protocol.messages import CompletionRequest, CoreStatus
from tests.lsp_server.editor import URI, connected_editor, until
from tests.lsp_server.fake_core import READY, FakeCore


async def test_what_was_asked_for_arrives_when_the_model_is_loaded(core: FakeCore) -> None:
    loaded = asyncio.Event()

    async def answer(request: CompletionRequest) -> str:
        await loaded.wait()
        return request.prompt.increment

    core.answer, core.status = answer, CoreStatus("unloaded", "fake")
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, progress=True)
        await editor.until_state("unloaded")
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
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, inline=False)
        await editor.until_state("unloaded")
        editor.open("a")
        params = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(0, 1))
        result = await editor.text_document_completion_async(params)
        assert isinstance(result, types.CompletionList)
        assert not result.items
        await until(lambda: core.requests)
        assert core.asked == []

"""Settings and the connection to the core, as a client sees them change."""

from __future__ import annotations

import asyncio

from lsprotocol import types

from protocol.messages import CompletionRequest
from protocol.settings import Settings

from .editor import Editor, connected_editor, until
from .fake_core import FakeCore


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

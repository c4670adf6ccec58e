"""What the client is told without having asked."""

from __future__ import annotations

from protocol.errors import BadModel
from protocol.messages import CoreStatus
from tests.lsp_server.editor import URI, Editor, connected_editor, until
from tests.lsp_server.fake_core import FakeCore, fails


async def test_tells_the_cost_of_an_answer(editor: Editor) -> None:
    editor.open("a")
    await editor.suggest(0, 1)
    usage = await editor.last_usage()
    assert (usage.textDocument.uri, usage.version, usage.position.character) == (URI, 1, 1)
    assert (usage.ahead, usage.source, usage.heat, usage.usage.recomputed_tokens) == (False, "core", "hot", 1)


async def test_clients_that_do_not_know_resync_are_told_in_words(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": core.url, "coreToken": core.token}, experimental=False)
        editor.open("a\n")
        editor.change(2, (9, 0), (9, 0), "x")
        await until(lambda: editor.messages)
        assert "line 9" in editor.messages[0]
        assert "closed and reopened" in editor.messages[0]
        assert editor.statuses == []
        assert editor.usages == []


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

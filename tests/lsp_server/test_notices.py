"""What the client is told without having asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lsp_server.notices import Notices
from protocol.errors import BadModel
from protocol.messages import CoreStatus
from tests.lsp_server.editor import URI, Editor, connected_editor, until
from tests.lsp_server.fake_core import FakeCore, fails

if TYPE_CHECKING:
    from pygls.progress import Progress

    from lsp_server.progress import ShownProgress


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
        editor.change(2, (0, 1), (0, 0), "x")
        await until(lambda: editor.messages)
        assert "before its start" in editor.messages[0]
        assert "closed and reopened" in editor.messages[0]
        assert editor.statuses == []
        assert editor.usages == []


@pytest.mark.parametrize(
    ("uri", "name"),
    [("file:///a/b%20c.py", "b c.py"), ("nb.ipynb#python", "nb.ipynb"), ("file://[x/a.py", "a.py"), ("", "")],
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

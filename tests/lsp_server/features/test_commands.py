"""Why nothing is suggested: what the client is told, in which words, and when it is to request again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled

from lsp_server.core_client.link import LinkStatus
from lsp_server.suggesting import reasons
from lsp_server.suggesting.reasons import of_core
from protocol.errors import DeviceLost
from protocol.messages import CoreStatus
from tests.lsp_server.editor import URI, Editor, connected_editor, editor_on, inline_params, until
from tests.lsp_server.fake_core import READY, FakeCore, fails, says


async def told(editor: Editor) -> tuple[str, str]:
    """The kind and the explanation of the document's reason, which is also what was last told without being asked."""
    reason = await editor.last_reason()
    assert editor.reasons[-1] == reason
    return reason.kind, reason.explanation


@pytest.mark.parametrize(
    ("settings", "text", "cursor", "said"),
    [
        ({"disabledLanguages": ["python"]}, "a", (0, 1), "off for python: the setting disabledLanguages has"),
        ({}, "a" * 10_001, (0, 1), "has more than 10,000 characters"),
    ],
)
async def test_what_the_settings_switch_off(
    editor: Editor, core: FakeCore, settings: dict[str, Any], text: str, cursor: tuple[int, int], said: str
) -> None:
    editor.configure(settings)
    editor.open(text)
    assert await editor.suggest(*cursor) == []
    assert said in (await told(editor))[1]
    assert core.requests == []


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ("", "nothing", "predicts that nothing is to be added"),
        (" = 1", "filtered", "which midfill does not show: it says what stands behind the cursor"),
    ],
)
async def test_what_is_left_of_the_models_answer(editor: Editor, core: FakeCore, answer: str, kind: str, said: str) -> None:
    core.answer = says(answer)
    editor.open("a = 1\n")
    assert await editor.suggest(0, 1) == []
    assert (await told(editor))[0] == kind
    assert said in (await told(editor))[1]
    core.answer = says("b = 2")
    editor.change(2, (0, 5), (0, 5), ";")
    assert await editor.suggested_text(0, 6)
    await until(lambda: editor.reasons[-1] is None)


async def test_a_core_on_another_machine_that_does_not_answer_is_named_and_tried_again(core: FakeCore) -> None:
    async with connected_editor() as editor:
        await editor.start({"core": "ws://127.0.0.1:9", "coreToken": core.token})
        editor.open("a")
        await until(lambda: editor.reasons and editor.reasons[-1].kind == "failed")
        reason = editor.reasons[-1]
        assert reason.text == "core unreachable"
        assert "no core answers at ws://127.0.0.1:9/ws: connection refused. midfill goes on" in reason.explanation
        assert [(action.title, action.command) for action in reason.actions] == [("Try again now", reasons.RESTART_COMMAND)]
        editor.configure({"core": core.url, "coreToken": core.token})
        await editor.until_state("ready")
        assert await editor.last_reason() is None


def test_a_core_is_starting_or_being_connected_to() -> None:
    here, elsewhere = of_core(LinkStatus("starting")), of_core(LinkStatus("starting", remote=True))
    assert here is not None
    assert elsewhere is not None
    assert (here.text, elsewhere.text) == ("starting", "connecting")


async def test_an_error_of_the_core_is_the_reason_of_the_request_alone(editor: Editor, core: FakeCore) -> None:
    core.answer = fails(DeviceLost("division by zero"))
    editor.open("a")
    assert await editor.suggest(0, 1) == []
    assert (await told(editor))[1] == "The last request failed: division by zero."
    assert editor.refreshes == []  # which would fail again


async def test_a_secret_is_suggested_in_only_after_the_user_has_said_so(editor: Editor, core: FakeCore) -> None:
    uri = "file:///project/.env"
    editor.open("KEY=", uri=uri)
    assert await editor.suggest(0, 4, uri=uri) == []
    reason = await editor.last_reason(uri=uri)
    assert reason.kind == "excluded"
    assert ".env in the built-in list of secrets" in reason.explanation
    (action,) = reason.actions
    assert action.title == "Suggest here all the same"
    assert action.detail.startswith("Only if its name misleads and it holds no secret. Its text enters its own prompts")
    await editor.execute(action.command, *action.arguments)
    await until(lambda: editor.refreshes)
    assert editor.refreshes[-1].textDocument.uri == uri
    assert await editor.suggested_text(0, 4, uri=uri) == "x = 1"
    editor.close(uri=uri)
    editor.open("KEY=", uri=uri)
    assert await editor.suggest(0, 4, uri=uri) == []
    await until(lambda: any(session.endswith(uri) for session in core.forgotten))


async def test_a_file_that_git_ignores_gets_suggestions_unless_the_setting_is_off(core: FakeCore, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.gen.py\n")
    uri = (tmp_path / "a.gen.py").as_uri()
    async with editor_on(core, folder=tmp_path.as_uri()) as editor:
        editor.open("a", uri=uri)
        assert await editor.suggested_text(0, 1, uri=uri) == "x = 1"
        editor.configure({"ignoredFiles": "off"})
        editor.change(2, (0, 1), (0, 1), "b", uri=uri)
        assert await editor.suggest(0, 2, uri=uri) == []
        reason = await editor.last_reason(uri=uri)
        assert "*.gen.py in .gitignore, line 1" in reason.explanation
        editor.configure({"ignoredFiles": "context"})
        await until(lambda: editor.refreshes)
        assert await editor.suggested_text(0, 2, uri=uri) == "x = 1"


async def test_a_snooze_ends_by_itself_or_on_request(editor: Editor, core: FakeCore) -> None:
    editor.open("a")
    for begin, end in ((0.01, []), (0, ["midfill.resume"])):
        await editor.execute("midfill.snooze", begin)
        assert await editor.suggest(0, 1) == []
        reason = await editor.last_reason()
        assert reason.kind == "snoozed"
        assert reason.text.startswith("snoozed until ")
        assert [action.title for action in reason.actions] == ["Resume now"]
        before = len(editor.refreshes)
        for command in end:
            await editor.execute(command)
        await until(lambda before=before: len(editor.refreshes) > before)  # type: ignore[misc]
        assert await editor.last_reason() is None
    assert core.asked == []
    for minutes in (-1, 10**9):
        with pytest.raises(Exception, match="expected 0 to 10080"):
            await editor.execute("midfill.snooze", minutes)


async def test_a_document_that_is_opened_again_has_no_reason_of_before(editor: Editor) -> None:
    editor.open("a")
    editor.move_cursor(0, 1)
    await editor.execute("midfill.snooze", 5)
    assert (await told(editor))[0] == "snoozed"
    editor.close()
    await until(lambda: editor.reasons[-1] is None)
    await editor.execute("midfill.resume")
    editor.open("a")
    assert await editor.last_reason() is None
    assert editor.reasons[-1] is None


async def test_what_the_editor_itself_switches_off(editor: Editor) -> None:
    editor.open("a")
    for off, said in (("workspace", "in this workspace"), ("hidden", "only on request: its setting editor.inlineSugg")):
        editor.switch(off)
        assert said in (await told(editor))[1]
    editor.switch(None, ["GitHub Copilot"])
    assert (await told(editor))[1].startswith("GitHub Copilot also suggests in this editor.")
    editor.switch(None, [])
    assert await editor.last_reason() is None


INVOKED = types.InlineCompletionTriggerKind.Invoked


async def switch_off(editor: Editor) -> None:
    editor.switch("workspace")


async def hide(editor: Editor) -> None:
    editor.switch("hidden")


async def snooze(editor: Editor) -> None:
    await editor.execute("midfill.snooze", 5)


async def ask_by_hand_alone(editor: Editor) -> None:
    editor.configure({"automatic": False})


@pytest.mark.parametrize(
    ("silence", "kind"), [(switch_off, "off"), (hide, "manual"), (snooze, "snoozed"), (ask_by_hand_alone, "manual")]
)
async def test_a_request_by_hand_is_answered_where_typing_gets_nothing(
    editor: Editor, core: FakeCore, silence: Callable[[Editor], Awaitable[None]], kind: str
) -> None:
    editor.open("a")
    await silence(editor)
    editor.move_cursor(0, 1)
    assert await editor.suggest(0, 1) == []
    assert (await told(editor))[0] == kind
    assert core.asked == core.requests == []  # nor is anything computed ahead
    assert [item.insert_text for item in await editor.suggest(0, 1, kind=INVOKED)] == ["x = 1"]
    assert (await told(editor))[0] == kind
    core.answer = says("")
    editor.change(2, (0, 1), (0, 1), "b")
    assert await editor.suggest(0, 2, kind=INVOKED) == []
    await until(lambda: editor.reasons[-1].kind == "nothing")
    assert (await told(editor))[0] == "nothing"  # of the request, rather than that typing gets nothing
    assert await editor.suggest(0, 2) == []
    assert (await told(editor))[0] == kind
    assert len(core.requests) == 2
    assert editor.refreshes == []


async def test_a_request_by_hand_passes_no_rule_about_files_and_languages(editor: Editor, core: FakeCore) -> None:
    for settings, uri in (({"disabledLanguages": ["python"]}, URI), ({}, "file:///project/.env")):
        editor.configure({"automatic": False, **settings})
        editor.open("a", uri=uri)
        assert await editor.suggest(0, 1, uri=uri, kind=INVOKED) == []
        assert (await editor.last_reason(uri=uri)).kind in ("off", "excluded")
        editor.close(uri=uri)
    assert core.requests == []


async def test_the_load_that_a_request_by_hand_waits_for_is_its_reason(editor: Editor, core: FakeCore) -> None:
    editor.configure({"automatic": False})
    editor.open("a")
    await core.set_status(CoreStatus("loading", "fake", progress=0.4))
    await editor.until_state("loading")
    loaded = core.hold()
    request = asyncio.create_task(editor.suggest(0, 1, kind=INVOKED))
    await until(lambda: editor.reasons and editor.reasons[-1] is not None and editor.reasons[-1].kind == "loading")
    await core.set_status(READY)
    loaded.set()
    assert len(await request) == 1
    await until(lambda: editor.reasons[-1].kind == "manual")


async def test_the_core_loads_and_the_client_requests_again(editor: Editor, core: FakeCore) -> None:
    """After a request that the client has given up meanwhile."""
    await core.set_status(CoreStatus("loading", "fake", progress=0.4))
    await editor.until_state("loading")
    assert editor.statuses[-1].reason.text == "loading 40 %"
    loaded = core.hold()
    editor.open("a")
    request = editor.protocol.send_request(types.TEXT_DOCUMENT_INLINE_COMPLETION, inline_params(0, 1), msg_id="r1")
    await until(lambda: core.asked)
    assert await told(editor) == ("loading", "Loading fake 40 %. Suggestions follow by themselves.")
    editor.protocol.notify(types.CANCEL_REQUEST, types.CancelParams("r1"))
    with pytest.raises(JsonRpcRequestCancelled):
        await asyncio.wrap_future(request)
    loaded.set()
    await core.set_status(READY)
    await until(lambda: editor.refreshes)
    assert (editor.refreshes[-1].textDocument.uri, editor.refreshes[-1].invoked) == (URI, False)
    assert editor.reasons[-1] is None
    assert await editor.suggested_text(0, 1) == "x = 1"


async def test_a_long_prompt_is_the_reason_while_it_is_computed(editor: Editor, core: FakeCore) -> None:
    read = core.hold()
    editor.open("a")
    request = asyncio.create_task(editor.suggested_text(0, 1))
    await until(lambda: core.asked)
    await core.report_prefill(512, 1280)
    await until(lambda: editor.reasons)
    assert (await told(editor))[1].startswith("The model is reading the prompt: 512 of 1280 tokens.")
    read.set()
    assert await request == "x = 1"
    await until(lambda: editor.reasons[-1] is None)
    assert editor.refreshes == []  # the answer has come


def test_the_documentation_has_the_words_of_every_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    source = Path(reasons.__file__).read_text(encoding="utf-8")
    texts = re.findall(r'Reason\(\s*"\w+", "([^"]+)"', source)
    assert len(texts) > 12
    assert [text for text in texts if text not in page] == []

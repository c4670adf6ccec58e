"""Documents and cursors as an editor sends them."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from tests.lsp_server.editor import URI, Editor, editor_on, until
from tests.lsp_server.fake_core import FakeCore


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 9), ("utf-16", 7), ("utf-32", 6)])
async def test_counts_columns_as_negotiated(core: FakeCore, encoding: str, character: int) -> None:
    async with editor_on(core, encoding=encoding) as editor:
        assert editor.server.capabilities.position_encoding == encoding
        editor.open('x = "😋"\n')
        editor.change(2, (0, character), (0, character), "y")
        items = await editor.suggest(0, character + 1)
        assert (await editor.document_hash()).sha256 == hashlib.sha256('x = "😋y"\n'.encode()).hexdigest()
        assert core.asked[-1].prompt.increment == 'x = "😋y'
        assert items[0].range == types.Range(types.Position(0, character + 1), types.Position(0, character + 1))


async def test_moving_the_cursor_makes_its_prompt_resident(editor: Editor, core: FakeCore) -> None:
    editor.open("a\nb\n")
    editor.move_cursor(0, 1)
    await editor.document_hash()
    editor.change(2, (0, 0), (0, 0), "x")
    editor.move_cursor(1, 1)
    await until(lambda: editor.usages)
    assert [request.max_tokens for request in core.requests] == [0]  # only where something was typed
    assert core.requests[-1].prompt.increment == "xa\nb"
    assert editor.usages[-1].isPrefetch


async def test_a_move_to_the_place_that_is_asked_about_disturbs_nothing(editor: Editor, core: FakeCore) -> None:
    release = core.hold("y")
    editor.open("a")
    pending = asyncio.create_task(editor.suggested_text(0, 1))
    await until(lambda: core.asked)
    editor.move_cursor(0, 1)
    await editor.document_hash()
    release.set()
    assert await pending == "y"


async def test_a_position_inside_a_code_point_is_refused_and_nothing_lost(editor: Editor) -> None:
    editor.open("😋\n")
    with pytest.raises(JsonRpcInvalidParams, match=r"character 1 of line 0 of .* inside a code point"):
        await editor.suggest(0, 1)
    assert await editor.suggest(0, 2)


async def test_an_edit_that_makes_no_sense_asks_for_a_resync(editor: Editor, core: FakeCore) -> None:
    editor.open("a\n")
    editor.change(2, (9, 0), (8, 0), "x")
    await until(lambda: editor.resyncs)
    assert editor.resyncs[0].textDocument.uri == URI
    assert "ends at (8, 0) before its start (9, 0)" in editor.resyncs[0].reason
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
    assert [(resync.textDocument.uri, resync.reason[:23]) for resync in editor.resyncs] == [(URI, "textDocument/didChange:")]
    assert json.dumps(change) in editor.resyncs[0].reason
    told = [record.levelname for record in caplog.records if editor.resyncs[0].reason in record.message]
    assert told == ["WARNING"] * 2
    assert await editor.suggest(0, 0) == []
    editor.replace_all(4, "xa\n")
    assert await editor.suggest(0, 1)

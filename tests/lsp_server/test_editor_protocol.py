"""Messages that break LSP's rules: tolerated where that is harmless, answered where it is not."""

from __future__ import annotations

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcInvalidRequest

from .editor import URI, Editor


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


async def test_initialize_is_for_once(editor: Editor) -> None:
    with pytest.raises(JsonRpcInvalidRequest, match="sent before"):
        await editor.ask_in_json(types.INITIALIZE, {"processId": None, "rootUri": None, "capabilities": {}})
    editor.open("a")
    assert (await editor.document_hash()).length == 1

"""Messages that break LSP's rules: tolerated where that is harmless, answered where it is not."""

from __future__ import annotations

import asyncio

import pytest
from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcRequestCancelled,
    JsonRpcServerNotInitialized,
)

from lsp_server.custom_messages import DOCUMENT_HASH
from lsp_server.server import MidfillServer
from lsp_server.suggesting.reasons import RESTART_COMMAND
from tests.lsp_server.editor import URI, Editor, connected_editor, editor_on
from tests.lsp_server.fake_core import FakeCore


@pytest.mark.parametrize("kind", [0, 1, 2, 3, None, "Automatic"])
async def test_tolerates_trigger_kinds(editor: Editor, kind: object) -> None:
    editor.open("a")
    params = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 1}, "context": {"triggerKind": kind}}
    result = await editor.ask_in_json(types.TEXT_DOCUMENT_INLINE_COMPLETION, params)
    assert len(result.items) == 1


async def test_initialize_is_for_once(editor: Editor) -> None:
    with pytest.raises(JsonRpcInvalidRequest, match="already sent"):
        await editor.ask_in_json(types.INITIALIZE, {"processId": None, "rootUri": None, "capabilities": {}})
    editor.open("a")
    assert (await editor.document_hash()).length == 1


async def test_before_initialize_requests_are_refused_and_notifications_dropped(core: FakeCore) -> None:
    async with connected_editor() as editor:
        stolen = {"midfill": {"core": core.url, "coreToken": core.token, "model": "/somewhere"}}
        editor.configure(stolen)
        editor.open("a")
        for method in (DOCUMENT_HASH, types.SHUTDOWN, "no/such"):
            with pytest.raises(JsonRpcException, match=f"{method} before initialize") as refused:
                await editor.ask_in_json(method, {"textDocument": {"uri": URI}})
            assert refused.value.code == JsonRpcServerNotInitialized.CODE
        assert not core.connections
        await editor.start({"core": core.url, "coreToken": core.token})
        with pytest.raises(JsonRpcInvalidParams, match="is not open"):
            await editor.document_hash()


async def test_a_shutdown_ends_everything_that_is_under_way(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: MidfillServer) -> None:
        await asyncio.Future[None]()

    async with editor_on(core) as editor:
        monkeypatch.setattr(MidfillServer, "connect", never)
        restarts = [asyncio.ensure_future(editor.execute(RESTART_COMMAND)) for _ in range(2)]
        await editor.until_state("stopped")
    outcomes = await asyncio.gather(*restarts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [JsonRpcRequestCancelled] * 2

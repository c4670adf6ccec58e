"""Messages that break LSP's rules: tolerated where that is harmless, answered where it is not."""

from __future__ import annotations

import json

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcInvalidRequest

from lsp_server.server import MidfillServer
from protocol.settings import Settings

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


class Written:
    """Keeps what a server writes."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        pass


@pytest.mark.parametrize("text", ["x", "é中😀", "lone \ud800", "\u2028\x00"])
async def test_what_is_sent_is_the_message_behind_its_length_in_bytes(text: str) -> None:
    server, written = MidfillServer(Settings()), Written()
    server.protocol.set_writer(written)
    server.protocol.tell("midfill/status", {"message": text})
    server.window_show_message(types.ShowMessageParams(types.MessageType.Error, text))
    messages = []
    while written.data:
        header, _, rest = written.data.partition(b"\r\n\r\n")
        length = int(header.removeprefix(b"Content-Length: "))
        messages.append(json.loads(rest[:length]))
        written.data = rest[length:]
    told, shown = messages
    assert told == {"jsonrpc": "2.0", "method": "midfill/status", "params": {"message": text}}
    assert (shown["method"], shown["params"]) == ("window/showMessage", {"type": 1, "message": text})

"""Messages that break LSP's rules: tolerated where that is harmless, answered where it is not."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcInvalidRequest

from lsp_server.custom_messages import ACCEPTED_COMMAND, RESTART_COMMAND
from lsp_server.documents import Document, Position
from lsp_server.editor_protocol import make_converter
from lsp_server.framing import Framer
from lsp_server.items import accepted_command, inline_item, popup_item
from lsp_server.keystroke_messages import CompletionList, InlineCompletionList
from lsp_server.manners.place import Insertion
from lsp_server.server import MidfillServer
from protocol.settings import Settings

from .editor import URI, Editor


async def test_a_request_that_cannot_be_read_is_answered(editor: Editor) -> None:
    with pytest.raises(JsonRpcInvalidParams):
        await editor.ask_in_json(types.TEXT_DOCUMENT_INLINE_COMPLETION, {"position": "nowhere"})


@pytest.mark.parametrize("kind", [0, 1, 2, 3, None, "Automatic"])
async def test_tolerates_trigger_kinds(editor: Editor, kind: object) -> None:
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

    @property
    def messages(self) -> list[dict[str, Any]]:
        framer = Framer()
        framer.feed(self.data)
        return [json.loads(body) for body in iter(framer.next_body, None)]


@pytest.mark.parametrize("text", ["x", "é中😀", "lone \ud800", "\u2028\x00"])
async def test_what_is_sent_is_the_message_behind_its_length_in_bytes(text: str) -> None:
    server, written = MidfillServer(Settings()), Written()
    server.protocol.set_writer(written)
    server.protocol.tell("midfill/status", {"message": text})
    server.window_show_message(types.ShowMessageParams(types.MessageType.Error, text))
    told, shown = written.messages
    assert told == {"jsonrpc": "2.0", "method": "midfill/status", "params": {"message": text}}
    assert (shown["method"], shown["params"]) == ("window/showMessage", {"type": 1, "message": text})


@pytest.mark.parametrize("text", ["x\ny", "lone \ud800"])
@pytest.mark.parametrize("lists", ["inline", "popup"])
async def test_suggestions_are_sent_as_pygls_would_send_them(text: str, lists: str) -> None:
    """As its own types, that is, whose JSON is LSP's."""
    server, written = MidfillServer(Settings()), Written()
    server.protocol.set_writer(written)
    document = Document.from_text(URI, "python", 1, "a b")
    item_of = inline_item if lists == "inline" else popup_item
    where = server.documents.codec, document, Position(0, 3)
    item = item_of(*where, Insertion(text, replaced=0, taken=1), accepted_command(7, 0))
    answer = InlineCompletionList([item]) if lists == "inline" else CompletionList(True, [item])
    server.protocol._send_response(1, answer)
    (sent,) = written.messages
    kind = types.InlineCompletionList if lists == "inline" else types.CompletionList
    converter = make_converter()
    read = converter.structure(sent["result"], kind)
    assert (read.items[0].insert_text if lists == "inline" else read.items[0].text_edit.new_text).endswith(text)
    assert read.items[0].command == types.Command(title="Accepted", command=ACCEPTED_COMMAND, arguments=(7, 0))
    assert sent == {"jsonrpc": "2.0", "id": 1, "result": converter.unstructure(read)}


async def test_what_is_told_behind_an_answer_follows_it_at_once() -> None:
    server, written = MidfillServer(Settings()), Written()
    server.protocol.set_writer(written)
    server.protocol.after_answer(functools.partial(server.protocol.tell, "midfill/usage", {}))
    assert written.messages == []
    for message_id in (1, 2):
        body = {
            "jsonrpc": "2.0",
            "id": message_id,
            "method": "midfill/documentHash",
            "params": {"textDocument": {"uri": ""}},
        }
        server.protocol.receive(json.dumps(body).encode())
        await asyncio.sleep(0.01)
    answers = [message.get("id", message.get("method")) for message in written.messages]
    assert answers == [1, "midfill/usage", 2]


@pytest.mark.parametrize("method", ["textDocument/didChange", "midfill/didMoveCursor", "textDocument/didClose"])
async def test_what_is_told_after_the_shutdown_is_passed_over(method: str) -> None:
    server, written = MidfillServer(Settings()), Written()
    server.protocol.set_writer(written)
    server.protocol.receive(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "shutdown"}).encode())
    await asyncio.sleep(0.01)
    params = {
        "textDocument": {"uri": "file:///a.py", "version": 2},
        "contentChanges": [],
        "position": {"line": 0, "character": 0},
    }
    server.protocol.receive(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())
    assert [message["id"] for message in written.messages] == [1]


async def test_a_shutdown_ends_everything_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """To end one request of a command makes pygls forget it, while it goes through all of them."""
    server, written = MidfillServer(Settings()), Written()
    monkeypatch.setattr(server, "connect", asyncio.Future)
    server.protocol.set_writer(written)
    for number in (1, 2):
        params = {"command": RESTART_COMMAND, "arguments": []}
        body = {"jsonrpc": "2.0", "id": number, "method": "workspace/executeCommand", "params": params}
        server.protocol.receive(json.dumps(body).encode())
    await asyncio.sleep(0.01)
    server.protocol.receive(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "shutdown"}).encode())
    await asyncio.sleep(0.05)
    outcomes = {message["id"]: message.get("error", {}).get("code") for message in written.messages}
    assert outcomes == {1: types.LSPErrorCodes.RequestCancelled, 2: types.LSPErrorCodes.RequestCancelled, 3: None}

"""The messages of a keystroke: read at once where they are as LSP has them, leniently where they nearly are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types
from pygls.protocol import default_converter

from lsp_server.custom_messages import DID_MOVE_CURSOR
from lsp_server.keystroke_messages import (
    Identifier,
    KeystrokeMessage,
    UnreadableChange,
    decode_strictly,
    stand_in,
    structure,
)

CONVERTER = default_converter()
places = st.builds(types.Position, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
ranges = st.builds(types.Range, places, places)
texts = st.text(st.characters(exclude_categories=("Cs",)))
identifiers = st.builds(types.TextDocumentIdentifier, texts)
changes = st.one_of(
    st.builds(types.TextDocumentContentChangePartial, ranges, texts, st.none() | st.integers(0, 9)),
    st.builds(types.TextDocumentContentChangeWholeDocument, texts),
)
inline_contexts = st.builds(
    types.InlineCompletionContext,
    st.sampled_from(types.InlineCompletionTriggerKind),
    st.none() | st.builds(types.SelectedCompletionInfo, ranges, texts),
)
did_change = st.builds(
    types.DidChangeTextDocumentParams,
    st.builds(types.VersionedTextDocumentIdentifier, st.integers(-(2**31), 2**31 - 1), texts),
    st.lists(changes, max_size=3),
)
MESSAGES = {
    types.TEXT_DOCUMENT_DID_CHANGE: did_change,
    DID_MOVE_CURSOR: st.builds(types.TextDocumentPositionParams, identifiers, places),
    types.TEXT_DOCUMENT_INLINE_COMPLETION: st.builds(
        types.InlineCompletionParams, inline_contexts, identifiers, places
    ),
    types.TEXT_DOCUMENT_COMPLETION: st.builds(types.CompletionParams, identifiers, places),
}
REQUESTS = (types.TEXT_DOCUMENT_INLINE_COMPLETION, types.TEXT_DOCUMENT_COMPLETION)


def fields_of(value: Any) -> Any:
    """As JSON has it, without what is None, so that it can be compared."""
    if isinstance(value, dict):
        return {name: fields_of(part) for name, part in value.items() if part is not None and name != "rangeLength"}
    return [fields_of(part) for part in value] if isinstance(value, list) else value


@given(st.sampled_from(sorted(MESSAGES)), st.data(), st.integers() | st.text("ab"))
def test_says_what_the_message_says(method: str, data: st.DataObject, message_id: int | str) -> None:
    params = CONVERTER.unstructure(data.draw(MESSAGES[method]))
    sent = {"jsonrpc": "2.0", "method": method, "params": params}
    if method in REQUESTS:
        sent["id"] = message_id
    read = decode_strictly(json.dumps(sent).encode())
    assert read == structure(sent)
    assert read is not None
    assert (read.method, read.id) == (method, sent.get("id"))
    assert fields_of(msgspec.to_builtins(read.params)) == fields_of(params)


def request(**changed: Any) -> dict[str, Any]:
    params = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": 0, "character": 1}}
    method = types.TEXT_DOCUMENT_COMPLETION
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params} | changed


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        json.dumps(request(jsonrpc="1.0")).encode(),
        json.dumps(request(method="textDocument/hover")).encode(),
        json.dumps(request(method=3)).encode(),
        json.dumps(request(id={})).encode(),
        json.dumps(request(params=None)).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(),
    ],
)
def test_what_is_another_message_is_left_to_pygls(body: bytes) -> None:
    assert decode_strictly(body) is None


def read_leniently(message: dict[str, Any]) -> KeystrokeMessage:
    assert decode_strictly(json.dumps(message).encode()) is None
    read = structure(message)
    assert read is not None
    return read


@pytest.mark.parametrize("line", [2.0, "2"])
def test_numbers_as_clients_write_them(line: object) -> None:
    params = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": line, "character": 1}}
    assert read_leniently(request(params=params)).params.position.line == 2


def test_a_lone_surrogate_stays() -> None:
    document = {"uri": "file:///a.py", "version": 2}
    params = {"textDocument": document, "contentChanges": [{"text": "\ud800"}]}
    message = {"jsonrpc": "2.0", "method": types.TEXT_DOCUMENT_DID_CHANGE, "params": params}
    assert read_leniently(message).params.content_changes[0].text == "\ud800"


def test_the_id_of_a_notification_is_passed_over() -> None:
    assert read_leniently(request(method=DID_MOVE_CURSOR)).id is None


def test_a_request_without_an_id_is_refused() -> None:
    message = request()
    del message["id"]
    assert decode_strictly(json.dumps(message).encode()) is None
    with pytest.raises(msgspec.ValidationError, match="`id`"):
        structure(message)


def test_other_methods_are_left_alone() -> None:
    assert structure(request(method="textDocument/hover")) is None
    assert structure(request(method=3)) is None


def test_only_a_change_of_a_document_that_is_named_has_a_stand_in() -> None:
    change = {"method": types.TEXT_DOCUMENT_DID_CHANGE, "params": {"textDocument": {"uri": "u"}, "reason": 1}}
    assert stand_in(change, "why") == KeystrokeMessage(
        types.TEXT_DOCUMENT_DID_CHANGE, UnreadableChange(Identifier("u"), "why")
    )
    assert stand_in(change | {"params": {"textDocument": 1}}, "why") is None
    assert stand_in(change | {"params": None}, "why") is None
    assert stand_in(change | {"method": types.TEXT_DOCUMENT_DID_SAVE}, "why") is None

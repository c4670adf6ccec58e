"""What comes with every key, and what answers it, with their types: read and written at once, since somebody waits.

All other messages go through pygls, field by field, which takes tenths of a millisecond for each of these.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from lsprotocol import types

from lsp_server.custom_messages import DID_MOVE_CURSOR
from lsp_server.positions import ClientPosition


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    """Fields as LSP names them; what it has besides is passed over."""


class Identifier(_Fields, frozen=True):
    """`TextDocumentIdentifier`."""

    uri: str


class VersionedIdentifier(Identifier, frozen=True):
    """`VersionedTextDocumentIdentifier`."""

    version: int


class Range(_Fields, frozen=True):
    """`Range`."""

    start: ClientPosition
    end: ClientPosition


class ContentChange(_Fields, frozen=True):
    """`TextDocumentContentChangeEvent`; without a range it is the whole text."""

    text: str
    range: Range | None = None


class DidChangeParams(_Fields, frozen=True):
    """`DidChangeTextDocumentParams`."""

    text_document: VersionedIdentifier
    content_changes: list[ContentChange]


class _DocumentParams(_Fields, frozen=True):
    text_document: Identifier


class UnreadableChange(_DocumentParams, frozen=True):
    """What stands in for a `DidChangeParams` that has not its form: of which document it was, and what is wrong."""

    reason: str


class PositionParams(_Fields, frozen=True):
    """`TextDocumentPositionParams`."""

    text_document: Identifier
    position: ClientPosition


class SelectedInfo(_Fields, frozen=True):
    """`SelectedCompletionInfo`."""

    range: Range
    text: str


class InlineContext(_Fields, frozen=True):
    """`InlineCompletionContext`. Trigger kinds that LSP does not know are no error: some clients count from 0."""

    trigger_kind: Any
    selected_completion_info: SelectedInfo | None = None


class InlineCompletionParams(_Fields, frozen=True):
    """`InlineCompletionParams`."""

    text_document: Identifier
    position: ClientPosition
    context: InlineContext


class Command(_Fields, frozen=True):
    """`Command`."""

    title: str
    command: str
    arguments: tuple[int, int]


class InlineCompletionItem(_Fields, frozen=True):
    """`InlineCompletionItem`."""

    insert_text: str
    range: Range
    command: Command


class InlineCompletionList(_Fields, frozen=True):
    """`InlineCompletionList`."""

    items: list[InlineCompletionItem]


class TextEdit(_Fields, frozen=True):
    """`TextEdit`."""

    range: Range
    new_text: str


class CompletionItem(_Fields, frozen=True):
    """`CompletionItem`."""

    label: str
    kind: types.CompletionItemKind
    detail: str
    documentation: str
    filter_text: str
    insert_text_format: types.InsertTextFormat
    insert_text_mode: types.InsertTextMode
    text_edit: TextEdit
    command: Command


class CompletionList(_Fields, frozen=True):
    """`CompletionList`."""

    is_incomplete: bool
    items: list[CompletionItem]


class KeystrokeMessage(msgspec.Struct, frozen=True):
    """A message of one of the methods below, with their parameters."""

    method: str
    params: Any
    id: int | str | None = None  # None in a notification


class _Envelope(msgspec.Struct, frozen=True):
    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw
    id: int | str | None = None


_NOTIFICATIONS: dict[str, type[_Fields]] = {
    types.TEXT_DOCUMENT_DID_CHANGE: DidChangeParams,
    DID_MOVE_CURSOR: PositionParams,
}
_REQUESTS: dict[str, type[_Fields]] = {
    types.TEXT_DOCUMENT_INLINE_COMPLETION: InlineCompletionParams,
    types.TEXT_DOCUMENT_COMPLETION: PositionParams,
}
_PARAMS = _NOTIFICATIONS | _REQUESTS
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_DECODERS = {method: msgspec.json.Decoder(params) for method, params in _PARAMS.items()}


def decode_strictly(body: bytes) -> KeystrokeMessage | None:
    """The message in a body of JSON; None where it is another one, or is not written as LSP has it."""
    try:
        envelope = _ENVELOPES.decode(body)
        if envelope.method not in (_NOTIFICATIONS if envelope.id is None else _REQUESTS):
            return None
        params = _DECODERS[envelope.method].decode(envelope.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return KeystrokeMessage(envelope.method, params, envelope.id)


def structure(message: dict[str, Any]) -> KeystrokeMessage | None:
    """The message that has these fields; None where it is another one. `msgspec.ValidationError` says what is wrong.

    Lone surrogates are left as they are, numbers may be written as 1.0 or "1", and a notification's id is passed over.
    """
    method = message["method"]
    if not isinstance(method, str) or method not in _PARAMS:
        return None
    params = msgspec.convert(message["params"], _PARAMS[method], strict=False)
    if method in _NOTIFICATIONS:
        return KeystrokeMessage(method, params)
    if message.get("id") is None:
        raise msgspec.ValidationError("Object missing required field `id`")
    return KeystrokeMessage(method, params, message["id"])


def stand_in(message: dict[str, Any], reason: str) -> KeystrokeMessage | None:
    """The message for one that cannot be read, where it changed a document that it names: no edit is lost unnoticed."""
    if message.get("method") != types.TEXT_DOCUMENT_DID_CHANGE:
        return None
    try:
        document = msgspec.convert(message["params"], _DocumentParams).text_document
    except msgspec.ValidationError:
        return None
    return KeystrokeMessage(types.TEXT_DOCUMENT_DID_CHANGE, UnreadableChange(document, reason))

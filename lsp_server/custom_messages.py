"""The messages that midfill adds to LSP, for pygls; docs/language-server.md has their fields and meaning."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from lsprotocol import types

DID_MOVE_CURSOR = "midfill/didMoveCursor"
DID_FOCUS = "textDocument/didFocus"
DOCUMENT_HASH = "midfill/documentHash"
LAST_EXCHANGE = "midfill/lastExchange"
STATUS = "midfill/status"
USAGE = "midfill/usage"
REASON = "midfill/reason"
REFRESH = "midfill/refresh"
DID_SWITCH = "midfill/didSwitch"
REASON_REQUEST = "midfill/lastReason"
RESYNC = "midfill/resync"

DID_SHOW = "textDocument/didShowCompletion"
DID_ACCEPT_PARTLY = "textDocument/didPartiallyAcceptCompletion"
DID_CHANGE_STATUS = "didChangeStatus"

STOP_COMMAND = "midfill.stopCore"
UNLOAD_COMMAND = "midfill.unloadModel"
FREE_COMMAND = "midfill.freeMemory"
LIST_COMMAND = "midfill.listCores"
LIST_MODELS_COMMAND = "midfill.listModels"
DOWNLOAD_COMMAND = "midfill.downloadModel"
ACCEPTED_COMMAND = "midfill.accepted"

INLINE_EDIT = "textDocument/copilotInlineEdit"
DID_SHOW_EDIT = "textDocument/didShowInlineEdit"
EDIT_ACCEPTED_COMMAND = "midfill.nextEditAccepted"
EDIT_REFUSED_COMMAND = "midfill.nextEditRefused"

# LSP's own class of parameters that hold only a `textDocument`.
DocumentParams = types.DidCloseTextDocumentParams


@attrs.define
class ReportedItem:
    """The used field of an item: its command, by which midfill knows it. Some clients send nothing else of it."""

    command: types.Command


@attrs.define
class ShownParams:
    """The parameters of `textDocument/didShowCompletion`."""

    item: ReportedItem


@attrs.define
class PartlyAcceptedParams:
    """The parameters of `textDocument/didPartiallyAcceptCompletion`."""

    item: ReportedItem
    acceptedLength: int  # noqa: N815


@attrs.define
class SwitchParams:
    """The parameters of `midfill/didSwitch`."""

    textDocument: types.TextDocumentIdentifier  # noqa: N815
    off: Literal["workspace", "buffer", "editor", "setting", "hidden"] | None = None
    rivals: list[str] | None = None


@attrs.define
class DocumentVersion:
    """A document as a client names it; some name no version."""

    uri: str
    version: int | None = None


@attrs.define
class InlineEditParams:
    """The parameters of `textDocument/copilotInlineEdit`."""

    textDocument: DocumentVersion  # noqa: N815
    position: types.Position
    context: dict[str, Any] | None = None


@attrs.define
class ShownEditParams:
    """The parameters of `textDocument/didShowInlineEdit`; clients send back parts of the edit."""

    item: dict[str, Any]


def _message(name: str, params: type[Any], **more: Any) -> type[Any]:
    """A message class like those that pygls has for the methods of LSP."""
    fields = {"params": params, "method": str, "jsonrpc": str, **more}
    return attrs.make_class(name, {field: attrs.field(type=kind) for field, kind in fields.items()})


MESSAGE_TYPES: dict[str, type[Any]] = {
    DID_MOVE_CURSOR: _message("DidMoveCursor", types.TextDocumentPositionParams),
    DID_FOCUS: _message("DidFocus", DocumentParams),
    DID_SHOW: _message("DidShowCompletion", ShownParams),
    DID_SWITCH: _message("DidSwitch", SwitchParams),
    REASON_REQUEST: _message("LastReason", DocumentParams, id=int | str),
    INLINE_EDIT: _message("InlineEdit", InlineEditParams, id=int | str),
    DID_SHOW_EDIT: _message("DidShowInlineEdit", ShownEditParams),
    DID_ACCEPT_PARTLY: _message("DidPartiallyAcceptCompletion", PartlyAcceptedParams),
    DOCUMENT_HASH: _message("DocumentHash", DocumentParams, id=int | str),
    LAST_EXCHANGE: _message("LastExchange", DocumentParams, id=int | str),
}

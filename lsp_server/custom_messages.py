"""The messages that midfill adds to LSP: their names, what they carry, and their types for pygls.

From the client:

- `midfill/didMoveCursor {textDocument, position}`: the cursor went elsewhere without an edit; the prompt of that
  place is made resident ahead of the next keystroke.
- `textDocument/didFocus {textDocument}`: the document is looked at again; likewise, at its last cursor.
- `textDocument/didShowCompletion {item}`: an item is shown. A client that says so once is taken to say so always;
  what others are answered counts as shown.
- `textDocument/didPartiallyAcceptCompletion {item, acceptedLength}`: the beginning of an item was accepted, so many
  UTF-16 code units of its `insertText`; its rest is still shown.
- `midfill.accepted [number, index]`, a command: every item carries it for the client to run when it is accepted. The
  next suggestion is then computed at once.
- `midfill.restartCore []`, a command: the core of this machine exits, and another one is started with the present
  settings; where the settings name a core on another machine, the server only connects again.
- `midfill.stopCore []`, a command: the core of this machine exits, for all its clients, and none starts another.
- `midfill.unloadModel []`, a command: the core gives its model's memory back; the next suggestion loads it again.
- `midfill.listCores []`, a command: the running cores of this machine, as
  `[{model, state, detail, url, pid, memoryBytes, settings}]`, with the settings that are not at their defaults.
  A command that cannot be carried out fails with RequestFailed (-32803) and a message for the user.
- `midfill/documentHash {textDocument}`, a request: `{version, sha256, length}` of the mirrored text, hashed as
  UTF-8, its length in code points. For tests and replays, which check that no edit was lost.
- `midfill/lastExchange {textDocument}`, a request: `{complete, completed}`, the frames (`protocol.wire`) of the last
  suggestion that the core answered for the document, or null. For replays, which compute it again without reuse.

To clients that ask for it with the capability `experimental: {didChangeStatus: true}`:

- `didChangeStatus {busy, message, kind}`, as the Copilot language server has it: `kind` is "Normal", "Error" (needs the
  user) or "Inactive" (no connection, or the document that the user looks at is excluded).

To clients that ask for them with the capability `experimental: {midfill: true}`, and to no others:

- `midfill/status {state, message, model, device, progress}`: on every change, and once after `initialized`.
  `state` is "starting" (no connection yet), "unloaded", "loading", "ready", "failed" (needs the user) or "stopped".
- `midfill/usage {textDocument, version, position, ahead, source, ms, heat, usage}`: what a prompt cost, sent right
  behind the answer it belongs to, or earlier behind another one. `source` is "core", or "typed" where the user types
  what was suggested; `heat` is "hot", "warm" or "cold"; `usage` has the fields of `protocol.messages.Usage`; `ms` is
  from the request to its answer; `ahead` marks work that no request waited for.
- `midfill/excluded {textDocument, reason}`: this rule excludes the document that the user looks at: it gets no
  suggestions, and its text enters no prompt. `reason` is null when that ends: with the next document, or for this one.
- `midfill/resync {textDocument, reason}`: the mirror has lost step; close and open the document again.
"""

from __future__ import annotations

from typing import Any

import attrs
from lsprotocol import types

DID_MOVE_CURSOR = "midfill/didMoveCursor"
DID_FOCUS = "textDocument/didFocus"
DOCUMENT_HASH = "midfill/documentHash"
LAST_EXCHANGE = "midfill/lastExchange"
STATUS = "midfill/status"
USAGE = "midfill/usage"
EXCLUDED = "midfill/excluded"
RESYNC = "midfill/resync"

DID_SHOW = "textDocument/didShowCompletion"
DID_ACCEPT_PARTLY = "textDocument/didPartiallyAcceptCompletion"
DID_CHANGE_STATUS = "didChangeStatus"

RESTART_COMMAND = "midfill.restartCore"
STOP_COMMAND = "midfill.stopCore"
UNLOAD_COMMAND = "midfill.unloadModel"
LIST_COMMAND = "midfill.listCores"
ACCEPTED_COMMAND = "midfill.accepted"

# LSP's own class of parameters that hold a `textDocument` and nothing else.
DocumentParams = types.DidCloseTextDocumentParams


@attrs.define
class Item:
    """What is needed of an item, which clients send back as they had it; midfill's carry the command."""

    command: types.Command
    insertText: str  # noqa: N815  # as JSON has it


@attrs.define
class ShownParams:
    """The parameters of `textDocument/didShowCompletion`."""

    item: Item


@attrs.define
class PartlyAcceptedParams:
    """The parameters of `textDocument/didPartiallyAcceptCompletion`."""

    item: Item
    acceptedLength: int  # noqa: N815


def _message(name: str, params: type[Any], **more: Any) -> type[Any]:
    """The class of a message, as pygls has one for every method of LSP."""
    fields = {"params": params, "method": str, "jsonrpc": str, **more}
    return attrs.make_class(name, {field: attrs.field(type=kind) for field, kind in fields.items()})


MESSAGE_TYPES: dict[str, type[Any]] = {
    DID_MOVE_CURSOR: _message("DidMoveCursor", types.TextDocumentPositionParams),
    DID_FOCUS: _message("DidFocus", DocumentParams),
    DID_SHOW: _message("DidShowCompletion", ShownParams),
    DID_ACCEPT_PARTLY: _message("DidPartiallyAcceptCompletion", PartlyAcceptedParams),
    DOCUMENT_HASH: _message("DocumentHash", DocumentParams, id=int | str),
    LAST_EXCHANGE: _message("LastExchange", DocumentParams, id=int | str),
}

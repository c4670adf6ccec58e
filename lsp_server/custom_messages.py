"""The messages that midfill adds to LSP: their names, their fields, and their types for pygls.

From the client:

- `midfill/didMoveCursor {textDocument, position}`: the cursor moved without an edit; where the user edits, the server
  makes the prompt of that place resident ahead of the next keystroke.
- `textDocument/didFocus {textDocument}`: the document has the focus again; the server does the same at its last cursor.
- `textDocument/didShowCompletion {item}`: an item is shown. After a client's first such message, only items that it
  reports count as shown; without it, all answered items do.
- `textDocument/didPartiallyAcceptCompletion {item, acceptedLength}`: the beginning of an item was accepted, so many
  UTF-16 code units of its `insertText`; its rest is still shown.
- `midfill.accepted [number, index]`, a command: every item carries it for the client to run when it is accepted. The
  next suggestion is then computed at once.
- `midfill.restartCore []`, a command: the core of this machine exits, and the server starts another one with the
  present settings; if the settings name a core on another machine, the server only reconnects.
- `midfill.stopCore []`, a command: the core of this machine exits, for all its clients, and none starts another until
  the user requests a suggestion by hand (`triggerKind` Invoked), restarts the core, or runs `midfill core`.
- `midfill.unloadModel []`, a command: the core frees its model's memory; the next suggestion loads it again.
- `midfill.freeMemory [disk]`, a command: the core drops all resident KV from memory, and if `disk` is true also what
  is saved on disk; the model stays loaded. Returns what that gave back, in one line for the user.
- `midfill.listCores []`, a command: the cores of this machine, running or stopped by the user, and the one of another
  machine that the settings name, as `[{model, state, detail, url, pid, memoryBytes, memory, summary, settings}]`:
  `memory` has the fields of `protocol.messages.CoreMemory`, `summary` tells it in one line, `settings` are those that
  are not at their defaults. `pid`, `memoryBytes` and `memory` may be null.
- `midfill.listModels []`, a command: the models on this machine and some to download, as `midfill models --json` prints
  them: `[{name, source, path, family, parameters, sizeBytes, quantization, fimFormat, neededBytes, problem,
  runsWith, here, licence, speed, recommended}]`, those that can run first; `problem` is empty for these. `runsWith`
  names the engine that runs one in place of midfill's own. `here` is false for those to download, which alone have a
  `licence`. `name` is a value for the setting `model`.
- `midfill.downloadModel [name]`, a command: downloads a model from the Hugging Face hub, with LSP's work-done progress,
  which the user may cancel. Returns `{path}`, `{cancelled: true}`, after which the next download goes on from there, or
  `{choices: [{name, sizeBytes}]}` if a quantization must be chosen first.
- `midfill.snooze [minutes]`, a command: suggestions only on request (`triggerKind` Invoked) for so long; with 0 until
  the server restarts.
- `midfill.resume []`, a command: ends the snooze.
- `midfill.suggestHere [uri]`, a command: the excluded document enters its own prompts, and no others, until it is
  closed.
- `midfill.suggestNow [uri]`, a command: the server sends `midfill/refresh` with `invoked`.
- `midfill.linkDashboard []`, a command: the address of the core's dashboard, which opens that page once, within two
  minutes.

- `textDocument/copilotInlineEdit {textDocument: {uri, version}, position, context: {triggerKind}}`, a request, as in
  the Copilot language server: `{edits: [{text, range, textDocument: {uri, version}, command}]}` with one next edit,
  whose `text` replaces its `range`, or with none. `triggerKind` 1 is a request of the user, which passes the gate.
- `textDocument/didShowInlineEdit {item: {command}}`: a next edit is shown. After a client's first such message, only
  edits that it reports count as shown.
- `midfill.nextEditAccepted [number]`, a command: every next edit carries it for the client to run when it is accepted.
- `midfill.nextEditRefused [number]`, a command: the user does not want this next edit, nor one that does the same.

A command that cannot be carried out fails with RequestFailed (-32803) and a message for the user.

- `midfill/didSwitch {textDocument, off, rivals}`: what switches suggestions off in the client itself: "workspace",
  "buffer", "editor", "setting" or "hidden", or null; requests that the user invokes are answered all the same. `rivals`
  are the names of other extensions that suggest in the editor.
- `midfill/lastReason {textDocument}`, a request: the document's reason, as in `midfill/reason`, or null.
- `midfill/documentHash {textDocument}`, a request: `{version, sha256, length}` of the mirrored text, hashed as
  UTF-8, its length in code points. For tests and replays, which check that no edit was lost.
- `midfill/lastExchange {textDocument}`, a request: `{complete, completed}`, the frames (`protocol.wire`) of the last
  completion that the core returned for the document, or null. For replays, which compute it again without reuse.

To clients that ask for it with the capability `experimental: {didChangeStatus: true}`:

- `didChangeStatus {busy, message, kind}`, as in the Copilot language server: `kind` is "Normal", "Error" (needs the
  user) or "Inactive" (no connection, or the viewed document is excluded).

To clients that ask for them with the capability `experimental: {midfill: true}`, and to no others:

- `midfill/status {state, message, model, device, progress, reason}`: on every change, and once after `initialized`.
  `reason` is why the core cannot answer now, as in `midfill/reason`, or null.
  `state` is "starting" (no connection yet), "unloaded", "loading", "ready", "failed" (needs the user) or "stopped".
- `midfill/usage {textDocument, version, position, isPrefetch, source, ms, cacheOutcome, usage}`: the cost of a prompt,
  sent right after its answer, or after an earlier one; `source` is "core", or "typed" if the last suggestion is typed;
  `cacheOutcome` is "hit", "partial" or "miss"; `usage` has the fields of `protocol.messages.Usage`; `ms` is the time in
  milliseconds from the request to its answer; `isPrefetch` marks a prefetch.
- `midfill/reason {textDocument, reason}`: why the document gets no suggestions, or why its last request got none, as
  `{kind, text, explanation, actions: [{title, command, arguments, detail}], lasts}`; null when that has ended. `text`
  has a few words for a status bar, `explanation` sentences of plain text; an action is a command of this server.
  `lasts` is false for a reason that concerns only the last request. `lsp_server/suggesting/reasons.py` has all reasons.
- `midfill/refresh {textDocument, invoked}`: request a suggestion at the cursor, without waiting for a key: what left
  the last request unanswered is over, or with `invoked` the user wants one that was held back.
- `midfill/resync {textDocument, reason}`: the mirror has lost step; close and open the document again.
"""

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
LINK_DASHBOARD_COMMAND = "midfill.linkDashboard"
ACCEPTED_COMMAND = "midfill.accepted"

INLINE_EDIT = "textDocument/copilotInlineEdit"
DID_SHOW_EDIT = "textDocument/didShowInlineEdit"
EDIT_ACCEPTED_COMMAND = "midfill.nextEditAccepted"
EDIT_REFUSED_COMMAND = "midfill.nextEditRefused"

# LSP's own class of parameters that hold only a `textDocument`.
DocumentParams = types.DidCloseTextDocumentParams


@attrs.define
class ReportedItem:
    """The used fields of an item, which clients send back unchanged; midfill's items carry the command."""

    command: types.Command
    insertText: str  # noqa: N815  # as JSON has it


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

"""The handlers of requests for next edits, in the Copilot language server's words, and of feedback on these."""

from __future__ import annotations

from functools import partial
from typing import Any

from lsprotocol import types

from lsp_server.custom_messages import (
    DID_SHOW_EDIT,
    EDIT_ACCEPTED_COMMAND,
    EDIT_REFUSED_COMMAND,
    INLINE_EDIT,
    InlineEditParams,
    ShownEditParams,
)
from lsp_server.documents.documents import Edit
from lsp_server.editor_protocol import refusing_bad_input
from lsp_server.features.text_documents import place_of
from lsp_server.next_edit.offers import parts_of
from lsp_server.server import MidfillServer
from protocol.errors import BadInput

_INVOKED = types.InlineCompletionTriggerKind.Invoked.value


def register(server: MidfillServer) -> None:
    """Register these messages and commands."""
    server.feature(INLINE_EDIT)(inline_edit)
    server.feature(DID_SHOW_EDIT)(did_show_edit)
    server.command(EDIT_ACCEPTED_COMMAND)(edit_accepted)
    server.command(EDIT_REFUSED_COMMAND)(edit_refused)


@refusing_bad_input
async def inline_edit(ls: MidfillServer, params: InlineEditParams) -> dict[str, Any]:
    """One next edit or none: several would be alternatives, but clients apply them all."""
    document = params.textDocument
    opened, cursor = place_of(ls, types.TextDocumentIdentifier(document.uri), params.position)
    if not ls.next_edits.enabled or document.version not in (None, opened.document.version):
        return {"edits": []}
    invoked = (params.context or {}).get("triggerKind") == _INVOKED
    edits = opened.edits
    offer = await ls.next_edits.offer(opened, cursor, invoked=invoked)
    if offer is None or opened.edits != edits:
        return {"edits": []}
    encode = partial(ls.session.documents.codec.encode, opened.document)

    def sent(edit: Edit) -> dict[str, Any]:
        return {"text": edit.text, "range": {"start": encode(edit.start)._asdict(), "end": encode(edit.end)._asdict()}}

    about = {
        "textDocument": {"uri": document.uri, "version": opened.document.version},
        "command": {"title": "Accepted", "command": EDIT_ACCEPTED_COMMAND, "arguments": [offer.number]},
        "parts": [sent(part) for part in parts_of(opened.document.lines, offer.edit)],
    }
    return {"edits": [sent(offer.edit) | about]}


def did_show_edit(ls: MidfillServer, params: ShownEditParams) -> None:
    """Record that a next edit is shown; BadInput if it is none of midfill's."""
    match params.item:
        case {"command": {"arguments": [int(number)]}}:
            ls.next_edits.shown(number)
        case _:
            raise BadInput(f"not a next edit of midfill: {params.item!r:.200}")


def edit_accepted(ls: MidfillServer, number: int) -> None:
    """Record that a next edit was accepted."""
    ls.next_edits.accepted(number)


def edit_refused(ls: MidfillServer, number: int) -> None:
    """Record that the user does not want a next edit."""
    ls.next_edits.refused(number)

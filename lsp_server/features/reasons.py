"""The handlers of the messages about why nothing is suggested, and of the commands that change that."""

from __future__ import annotations

import math
from typing import Any

from lsp_server.custom_messages import DID_SWITCH, REASON_REQUEST, DocumentParams, SwitchParams
from lsp_server.mistakes import RequestFailed, refusing_bad_input
from lsp_server.notices import reason_json
from lsp_server.server import MidfillServer
from lsp_server.suggesting.reasons import RESUME_COMMAND, SNOOZE_COMMAND, SUGGEST_HERE_COMMAND, SUGGEST_NOW_COMMAND
from protocol.errors import BadInput

_MOST_MINUTES = 7 * 24 * 60


def register(server: MidfillServer) -> None:
    """Register these messages and commands."""
    server.feature(DID_SWITCH)(did_switch)
    server.feature(REASON_REQUEST)(last_reason)
    server.command(SNOOZE_COMMAND)(snooze)
    server.command(RESUME_COMMAND)(resume)
    server.command(SUGGEST_HERE_COMMAND)(suggest_here)
    server.command(SUGGEST_NOW_COMMAND)(suggest_now)


def did_switch(ls: MidfillServer, params: SwitchParams) -> None:
    """Record whether the client suggests in a document, and which other extensions do."""
    ls.session.explainer.rivals = tuple(params.rivals or ())
    ls.session.switch(ls.session.documents[params.textDocument.uri], params.off or "")


@refusing_bad_input
async def last_reason(ls: MidfillServer, params: DocumentParams) -> dict[str, Any] | None:
    """Return why the document gets no suggestion, or its last request got none; null if it did."""
    return reason_json(ls.session.explainer.reason(ls.session.documents[params.text_document.uri]))


def snooze(ls: MidfillServer, minutes: float) -> None:
    """Suggest nothing for so many minutes; 0 = until the server restarts."""
    if not 0 <= minutes <= _MOST_MINUTES:
        raise RequestFailed(f"minutes = {minutes!r}: expected 0 to {_MOST_MINUTES}")
    ls.session.snooze(minutes * 60 or math.inf)


def resume(ls: MidfillServer) -> None:
    """End the snooze."""
    ls.session.snooze(0)


def suggest_here(ls: MidfillServer, uri: str) -> None:
    """Let an excluded document into its own prompts until it is closed."""
    try:
        ls.session.allow(ls.session.documents[uri])
    except BadInput as error:
        raise RequestFailed(str(error)) from error


def suggest_now(ls: MidfillServer, uri: str) -> None:
    """Have the client request a suggestion explicitly, which shows an unlikely one too."""
    try:
        ls.notices.refresh(uri, invoked=bool(ls.session.documents[uri]))
    except BadInput as error:
        raise RequestFailed(str(error)) from error

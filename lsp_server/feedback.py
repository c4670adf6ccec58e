"""The handlers of clients' feedback on suggestions, and the acceptance commands that answers carry for it."""

from __future__ import annotations

import asyncio
import functools
import time

from lsprotocol import types

from lsp_server.custom_messages import (
    ACCEPTED_COMMAND,
    DID_ACCEPT_PARTLY,
    DID_SHOW,
    PartlyAcceptedParams,
    ShownParams,
)
from lsp_server.editing.positions import PositionCodec, PositionEncoding
from lsp_server.filters.cursor_context import Insertion
from lsp_server.items import accepted_command, answer_number
from lsp_server.server import MidfillServer
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.queries import Query


def register(server: MidfillServer) -> None:
    """Register these messages and the command of its items."""
    server.feature(DID_SHOW)(did_show)
    server.feature(DID_ACCEPT_PARTLY)(did_accept_partly)
    server.command(ACCEPTED_COMMAND)(accepted)


async def suggest(
    ls: MidfillServer, opened: OpenDocument, query: Query, *, waits_for_core: bool = True
) -> tuple[tuple[Insertion, ...], list[types.Command]]:
    """Suggestions, recorded as answered, and for each the command that reports its acceptance."""
    request = asyncio.current_task()
    assert request is not None, "pygls answers a request from a task"
    # Behind pygls' own callback, which sends the answer.
    request.add_done_callback(functools.partial(ls.follow_up, opened))
    since = time.perf_counter()
    insertions = await ls.session.suggest(opened, query, waits_for_core=waits_for_core)
    if not insertions:
        return (), []
    milliseconds = (time.perf_counter() - since) * 1000
    number = ls.acceptances.answered(opened, query.cursor, insertions, milliseconds)
    return insertions, [accepted_command(number, index) for index in range(len(insertions))]


def did_show(ls: MidfillServer, params: ShownParams) -> None:
    """Record that an item is shown."""
    ls.acceptances.shown(answer_number(params.item.command))


def did_accept_partly(ls: MidfillServer, params: PartlyAcceptedParams) -> None:
    """Record that the beginning of an item was accepted."""
    utf16 = PositionCodec(PositionEncoding.UTF16)
    accepted = utf16.code_points(params.item.insertText, params.acceptedLength)
    ls.acceptances.accepted_partly(answer_number(params.item.command), accepted)


def accepted(ls: MidfillServer, number: int, index: int) -> None:
    """Record that an item was accepted whole, and compute the next suggestion ahead of its request."""
    place = ls.acceptances.accepted(number, index)
    if place is not None:
        ls.session.suggest_ahead(*place)

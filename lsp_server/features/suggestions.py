"""The handlers of requests for suggestions, and of clients' feedback on these."""

from __future__ import annotations

import asyncio
import functools
import re
import time

from lsprotocol import types

from lsp_server.custom_messages import ACCEPTED_COMMAND, DID_ACCEPT_PARTLY, DID_SHOW, PartlyAcceptedParams, ShownParams
from lsp_server.documents.documents import Document, Position
from lsp_server.documents.positions import PositionCodec
from lsp_server.editor_protocol import refusing_bad_input
from lsp_server.features.text_documents import client_position, place_of
from lsp_server.filters.cursor_context import Insertion
from lsp_server.server import MidfillServer
from lsp_server.suggesting.open_documents import OpenDocument
from lsp_server.suggesting.queries import Query, Selected
from protocol.errors import BadInput

_WORD_BEFORE = re.compile(r"(?:(?<!\w)\w+)?\Z")  # begins nowhere within a word, so that its time is linear


def register(server: MidfillServer) -> None:
    """Register these messages and the command of the items; clients without inline completion need `completion` too."""
    server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())(inline_completion)
    server.feature(DID_SHOW)(did_show)
    server.feature(DID_ACCEPT_PARTLY)(did_accept_partly)
    server.command(ACCEPTED_COMMAND)(accepted)


@refusing_bad_input
async def inline_completion(ls: MidfillServer, params: types.InlineCompletionParams) -> types.InlineCompletionList:
    """Suggest inline; without a suggestion the list is empty, since on null some clients keep showing the last one."""
    opened, cursor = place_of(ls, params.text_document, params.position)
    invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
    if invoked:
        ls.link.start_again()
    query = Query(cursor, invoked, _selected(ls, opened, cursor, params.context.selected_completion_info))
    insertions, commands = await _suggest(ls, opened, query)
    item = functools.partial(inline_item, ls.session.documents.codec, opened.document, cursor)
    return types.InlineCompletionList(list(map(item, insertions, commands)))


@refusing_bad_input
async def completion(ls: MidfillServer, params: types.CompletionParams) -> types.CompletionList:
    """Suggest in the popup, for clients without inline completion."""
    opened, cursor = place_of(ls, params.text_document, params.position)
    insertions, commands = await _suggest(ls, opened, Query(cursor), waits_for_core=False)
    item = functools.partial(popup_item, ls.session.documents.codec, opened.document, cursor)
    return types.CompletionList(is_incomplete=True, items=list(map(item, insertions, commands)))


def did_show(ls: MidfillServer, params: ShownParams) -> None:
    """Record that an item is shown."""
    ls.acceptances.shown(answer_number(params.item.command))


def did_accept_partly(ls: MidfillServer, params: PartlyAcceptedParams) -> None:
    """Record that the beginning of an item was accepted."""
    ls.acceptances.accepted_partly(answer_number(params.item.command), params.acceptedLength)


def accepted(ls: MidfillServer, number: int, index: int) -> None:
    """Record that an item was accepted whole, and prefetch the next suggestion."""
    place = ls.acceptances.accepted(number, index)
    if place is not None:
        ls.session.prefetch_suggestion(*place)


async def _suggest(
    ls: MidfillServer, opened: OpenDocument, query: Query, *, waits_for_core: bool = True
) -> tuple[tuple[Insertion, ...], list[types.Command]]:
    """Suggestions, recorded as answered, and for each the command that reports its acceptance."""
    request = asyncio.current_task()
    assert request is not None, "pygls answers a request from a task"
    # Behind pygls' own callback, which sends the answer.
    request.add_done_callback(functools.partial(ls.follow_up, opened))
    since, was_ready = time.perf_counter(), ls.link.ready
    insertions = await ls.session.suggest(opened, query, waits_for_core=waits_for_core)
    if not insertions:
        return (), []
    milliseconds = (time.perf_counter() - since) * 1000 if was_ready else None  # else a core has loaded its model
    number = ls.acceptances.answered(opened, query.cursor, insertions, milliseconds)
    return insertions, [accepted_command(number, index) for index in range(len(insertions))]


def _selected(
    ls: MidfillServer, opened: OpenDocument, cursor: Position, info: types.SelectedCompletionInfo | None
) -> Selected | None:
    """The selected entry of the popup; BadInput if it does not lie around the cursor, on its line."""
    if info is None:
        return None
    codec, document = ls.session.documents.codec, opened.document
    start, end = (codec.decode(document, client_position(place)) for place in (info.range.start, info.range.end))
    if not start.line == cursor.line == end.line or not start <= cursor <= end:
        raise BadInput(f"the selected entry, from {tuple(start)} to {tuple(end)}, does not contain the cursor {tuple(cursor)}")
    return Selected(start.column, end.column, info.text)


def inline_item(
    codec: PositionCodec, document: Document, cursor: Position, insertion: Insertion, accepted: types.Command
) -> types.InlineCompletionItem:
    """The item of `textDocument/inlineCompletion`; the client runs `accepted` when the user accepts the item."""
    start = Position(cursor.line, cursor.column - insertion.taken)
    span = _range(codec, document, start, Position(cursor.line, cursor.column + insertion.replaced))
    return types.InlineCompletionItem(insert_text=insertion.text, range=span, command=accepted)


def popup_item(
    codec: PositionCodec, document: Document, cursor: Position, insertion: Insertion, accepted: types.Command
) -> types.CompletionItem:
    """The item of `textDocument/completion`.

    Clients show only items that match the word before the cursor, so the item repeats and replaces that word.
    """
    word = _WORD_BEFORE.findall(document.lines[cursor.line][: cursor.column])[0]
    text = word + insertion.text
    start = Position(cursor.line, cursor.column - len(word))
    span = _range(codec, document, start, Position(cursor.line, cursor.column + insertion.replaced))
    first, *more = text.strip().splitlines()
    return types.CompletionItem(
        label=first + (" …" if more else ""),
        kind=types.CompletionItemKind.Text,
        detail="midfill",
        documentation=text,
        filter_text=text,
        insert_text_format=types.InsertTextFormat.PlainText,
        insert_text_mode=types.InsertTextMode.AsIs,
        text_edit=types.TextEdit(span, text),
        command=accepted,
    )


def accepted_command(number: int, index: int) -> types.Command:
    """The command of an answer's item, by the answer's number and the item's place in it."""
    return types.Command(title="Accepted", command=ACCEPTED_COMMAND, arguments=[number, index])


def answer_number(command: types.Command) -> int:
    """The number of the answer whose item carries this command; BadInput if it is no item of midfill's."""
    match command.arguments:
        case [int(number), int()]:
            return number
    raise BadInput(f"not a completion item of midfill: its command has the arguments {command.arguments!r:.200}")


def _range(codec: PositionCodec, document: Document, start: Position, end: Position) -> types.Range:
    return types.Range(*(types.Position(*codec.encode(document, place)) for place in (start, end)))

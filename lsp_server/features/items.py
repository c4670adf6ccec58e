"""Suggestions as LSP's items: an inline completion, or an entry of the completion popup."""

from __future__ import annotations

import re

from lsprotocol import types

from lsp_server.custom_messages import ACCEPTED_COMMAND
from lsp_server.editing.documents import Document, Position
from lsp_server.editing.positions import PositionCodec
from lsp_server.filters.cursor_context import Insertion
from protocol.errors import BadInput

_WORD_BEFORE = re.compile(r"\w*\Z")


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
